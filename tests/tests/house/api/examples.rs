//! Whether each public item shows how it is used, by an example that `cargo test --doc` runs.
//!
//! Nightly's `rustdoc --show-coverage` does not tell: it looks at what stands in public modules, and most of what users
//! name stands in private ones and is exported.

use crate::api::lines::{Line, Rank};
use crate::api::{exports, lines_of};
use crate::library::modules::Library;
use crate::library::sources_of;
use crate::none;

/// All public items, by their lines in `api.txt`, without an example that runs. Fields, variants and `impl`s are shown by
/// the example of their type.
fn unshown(library: &Library, macros: &Library) -> Vec<String> {
    let (lines, macros) = lines_of(library, macros);
    let items = lines.into_iter().chain(macros).filter(is_item);
    let items = items.map(|line| (line.to_string(), line.docs));
    let modules = exports::modules(library).into_iter();
    let modules = modules.map(|(name, docs)| (format!("mod {name}"), docs));
    let unshown = modules.chain(items).filter(|(_, docs)| !has_example(docs));
    unshown.map(|(item, _)| item).collect()
}

fn is_item(line: &Line) -> bool {
    matches!(line.rank, Rank::Definition | Rank::Function)
}

/// Whether code in this documentation is run when it is tested, and readers see some of it.
fn has_example(docs: &str) -> bool {
    let mut lines = docs.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some(words) = line.strip_prefix("```") else {
            continue;
        };
        let code = lines.by_ref().take_while(|line| *line != "```");
        let seen = code.filter(|line| !is_hidden(line)).count();
        if is_run(words) && seen > 0 {
            return true;
        }
    }
    false
}

/// By the words behind the fence: text is no code, and what is ignored, or only compiled, is not run.
fn is_run(words: &str) -> bool {
    words
        .split(',')
        .all(|word| matches!(word, "" | "rust" | "should_panic"))
}

fn is_hidden(line: &str) -> bool {
    line.is_empty() || line == "#" || line.starts_with("# ")
}

#[test]
fn each_public_item_has_an_example_that_runs() {
    let library = Library::read(&sources_of("distlock"));
    let macros = Library::read(&sources_of("distlock-macros"));
    none(
        &unshown(&library, &macros),
        "each public item has an example in its documentation that runs, neither `no_run` nor `ignore`: three to ten lines \
         that show when one uses it, and assert what a reader learns",
    );
}

#[test]
fn only_what_runs_and_is_seen_is_an_example() {
    let docs =
        |fence: &str, code: &str| format!("What it is.\n\n{fence}\n{code}\n```\n\n# Errors\n");
    assert!(has_example(&docs("```", "assert!(true);")));
    assert!(has_example(&docs("```rust", "# hidden();\nassert!(true);")));
    assert!(has_example(&docs(
        "```should_panic",
        "distlock::current();"
    )));
    for fence in [
        "```no_run",
        "```rust,no_run",
        "```ignore",
        "```text",
        "```toml",
    ] {
        assert!(!has_example(&docs(fence, "assert!(true);")), "{fence}");
    }
    assert!(!has_example(&docs("```", "# assert!(true);\n#\n")));
    assert!(!has_example("What `it` is.\n"));
    let second = docs("```toml", "[dependencies]") + &docs("```", "assert!(true);");
    assert!(has_example(&second));
    let text = docs("```text", "a\n") + "Not `code`.";
    assert!(!has_example(&text));
}

#[test]
fn items_without_an_example_are_found_wherever_they_stand() {
    use crate::library::made_up;

    let shown = "/// ```\n/// let _ = 1;\n/// ```\n";
    let a = format!(
        "
        {shown} pub struct Shown {{ pub field: u8 }}
        /// What it is.
        pub struct Unshown;
        impl Shown {{
            {shown} pub fn shown(&self) {{}}
            pub fn unshown(&self) {{}}
            pub(crate) fn inside(&self) {{}}
        }}
        impl Clone for Shown {{ fn clone(&self) -> Self {{ loop {{}} }} }}
        {shown} pub trait Told {{ fn tell(&self); {shown} fn ask(&self); type Answer; }}
        {shown} pub enum Kind {{ One, Two }}
        pub struct NobodyNamesIt;
        "
    );
    let b = "//! ```\n//! let _ = 1;\n//! ```\npub fn of_b() {}\n#[doc(hidden)] pub fn hidden() {}";
    let library = made_up(&[
        (
            "lib.rs",
            "mod a; pub mod b; pub mod c; pub use a::{Kind, Shown, Told, Unshown};",
        ),
        ("a.rs", &a),
        ("b.rs", b),
        ("c.rs", "//! Nothing."),
    ]);
    let macros = made_up(&[(
        "lib.rs",
        "#[proc_macro_attribute] pub fn locked(a: TokenStream, b: TokenStream) -> TokenStream { b }",
    )]);
    let mut found = unshown(&Library::read(&library), &Library::read(&macros));
    found.sort();
    assert_eq!(
        found,
        [
            "attribute locked",
            "fn Shown::unshown(&self)",
            "fn b::of_b()",
            "mod c",
            "required fn Told::tell(&self)",
            "required type Told::Answer",
            "struct Unshown",
        ]
    );
}
