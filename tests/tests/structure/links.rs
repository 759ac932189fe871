//! Every absolute link to the project begins with `workspace.package.repository` of Cargo.toml.

use distlock_tests::documents::document;

use crate::files::files_below;

/// Returns the value of `workspace.package.repository`.
fn repository() -> String {
    let manifest = document("Cargo.toml");
    let value = manifest.split_once("\nrepository = \"");
    let value = value.and_then(|(_, rest)| rest.split_once('"'));
    value.expect("a repository in Cargo.toml").0.to_owned()
}

/// Returns the URLs with the name of the project that lead neither to `repository`, nor to its raw
/// files, nor to docs.rs.
fn other_links(text: &str, repository: &str) -> Vec<String> {
    let raw = repository.replace("//github.com/", "//raw.githubusercontent.com/");
    let bases = [repository, &raw, "https://docs.rs/distlock"];
    let leads_to = |url: &str, base: &str| {
        let rest = url.strip_prefix(base);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '#', '.', ',']))
    };
    let words = text.split(|c: char| c.is_whitespace() || "\"'`<>()[]".contains(c));
    let mut urls: Vec<_> = words.filter(|word| word.starts_with("http")).collect();
    urls.retain(|url| url.contains("distlock"));
    urls.retain(|url| !bases.iter().any(|base| leads_to(url, base)));
    urls.into_iter().map(str::to_owned).collect()
}

#[test]
fn links_to_the_project_begin_with_its_repository() {
    let repository = repository();
    let paths = ["Cargo.toml", "README.md", "BENCHMARKS.md", "SECURITY.md"];
    let mut files = paths.map(|path| (path.to_owned(), document(path))).to_vec();
    for (extension, folders) in [
        ("md", &["distlock", "distlock-cli", "docs", "examples"][..]),
        (
            "toml",
            &["distlock", "distlock-macros", "distlock-cli", "docs"],
        ),
        ("rs", &["distlock/src", "distlock-macros/src"]),
        ("yml", &["docs"]),
        ("py", &["tests/book"]),
    ] {
        for folder in folders {
            files.extend(files_below(folder, extension));
        }
    }
    for (path, text) in files {
        assert_eq!(other_links(&text, &repository), [""; 0], "{path}");
    }
}

#[test]
fn other_links_are_found() {
    let repository = "https://github.com/a/distlock";
    for (text, count) in [
        ("[a](https://github.com/a/distlock/blob/main/A.md)", 0),
        ("(https://raw.githubusercontent.com/a/distlock/main/a)", 0),
        ("git = \"https://github.com/a/distlock\"", 0),
        ("`https://docs.rs/distlock/latest`, redis://distlock", 0),
        ("<https://github.com/b/distlock>", 1),
        ("url: http://github.com/a/distlock/issues", 1),
        ("https://github.com/a/distlock-old", 1),
    ] {
        assert_eq!(other_links(text, repository).len(), count, "{text}");
    }
}
