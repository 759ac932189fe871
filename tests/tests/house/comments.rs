//! Comments are as narrow as the code, which rustfmt keeps at 100 columns.

use crate::library::sources_of;

const WIDTH: usize = 100;

/// The numbers of the comment lines that are too wide. Tables, single words such as links, and the code of examples cannot
/// be broken.
fn too_wide(text: &str) -> Vec<usize> {
    let mut in_example = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!', ' ']);
        in_example ^= comment.starts_with("```");
        let is_breakable = !in_example && !comment.starts_with('|') && comment.contains(' ');
        if is_breakable && line.chars().count() > WIDTH {
            found.push(number);
        }
    }
    found
}

#[test]
fn no_comment_is_wider_than_the_code() {
    for package in ["distlock", "distlock-macros", "distlock-cli"] {
        for (file, text) in sources_of(package) {
            let found = too_wide(&text);
            assert!(found.is_empty(), "{package}/src/{file}: lines {found:?}");
        }
    }
}

#[test]
fn a_wide_comment_is_found() {
    let wide = format!("// {}", "x ".repeat(WIDTH));
    let text = format!(
        "{wide}\nfn f() {{}}\n    {wide}\n/// ```\n/{wide}\n/// ```\n/// | {wide}\n/{wide}"
    );
    assert_eq!(too_wide(&text), [1, 3, 8]);
}
