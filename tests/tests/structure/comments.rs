//! Comments are at most as wide as the code, which rustfmt keeps at 100 columns.

use crate::files::rust_files;

const WIDTH: usize = 100;

/// Returns the numbers of the comment lines that are too wide. Tables, single words such as links,
/// and the code of examples cannot be wrapped.
fn too_wide(text: &str) -> Vec<usize> {
    let mut in_example = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!', ' ']);
        in_example ^= comment.starts_with("```");
        let can_wrap = !in_example && !comment.starts_with('|') && comment.contains(' ');
        if can_wrap && line.chars().count() > WIDTH {
            found.push(number);
        }
    }
    found
}

#[test]
fn comments_are_no_wider_than_the_code() {
    for package in ["distlock", "distlock-macros", "distlock-cli"] {
        for (file, text) in rust_files(package) {
            assert_eq!(too_wide(&text), [0; 0], "{package}/src/{file}");
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
