//! The code in docs/migration.md from which it migrates compiles: it stands, word for word, in a package that depends on
//! those crates.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::none;

const DOCUMENT: &str = include_str!("../../../docs/migration.md");
const MANIFEST: &str = include_str!("../../migration/Cargo.toml");

/// Building it needs protoc, which nothing else here does.
const NOT_COMPILED: &str = "// etcd-client 0.21\n";

/// What is between the lines that open and close a block of a language.
fn blocks<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let opening = format!("```{language}\n");
    let after = document.split(opening.as_str()).skip(1);
    after
        .map(|rest| rest.find("```").map_or(rest, |end| &rest[..end]))
        .collect()
}

/// Blocks without a file, files without a block, and blocks that name another version than the manifest pins.
fn mistakes(blocks: &[&str], files: &BTreeMap<String, String>, manifest: &str) -> Vec<String> {
    let mut mistakes = Vec::new();
    for block in blocks
        .iter()
        .filter(|block| !block.starts_with(NOT_COMPILED))
    {
        let title = block.lines().next().unwrap_or_default();
        if !files.values().any(|file| file == block) {
            mistakes.push(format!(
                "no file in tests/migration/src is the block `{title}`"
            ));
        }
        let words: Vec<_> = title.trim_start_matches("// ").split([' ', ',']).collect();
        let pinned = words.get(1).is_some_and(|version| {
            let pin = format!("\"={version}.");
            let depends = |line: &str| line.split(" = ").next() == Some(words[0]);
            manifest
                .lines()
                .any(|line| depends(line) && line.contains(&pin))
        });
        if !pinned {
            mistakes.push(format!(
                "tests/migration/Cargo.toml pins another version than `{title}`"
            ));
        }
    }
    for (name, file) in files {
        if !blocks.contains(&file.as_str()) {
            mistakes.push(format!("{name} is no block of docs/migration.md"));
        }
    }
    mistakes
}

fn files() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migration/src");
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(&folder).expect("the folder can be read") {
        let path = entry.expect("it can be read to its end").path();
        if !path.ends_with("lib.rs") {
            let text = fs::read_to_string(&path).expect("the file is text");
            files.insert(path.display().to_string(), text);
        }
    }
    files
}

#[test]
fn the_code_before_is_code_that_compiles() {
    let blocks = blocks(DOCUMENT, "rust,ignore");
    assert!(blocks.len() >= 7, "only {} blocks were found", blocks.len());
    none(
        &mistakes(&blocks, &files(), MANIFEST),
        "each block of `rust,ignore` in docs/migration.md is a file of tests/migration, and the reverse",
    );
}

#[test]
fn what_differs_is_found() {
    let document = "text\n```rust,ignore\n// a 1.2\nf();\n```\n```rust\nours();\n```\n";
    let blocks = blocks(document, "rust,ignore");
    assert_eq!(blocks, ["// a 1.2\nf();\n"]);

    let file = |text: &str| BTreeMap::from([("a.rs".to_owned(), text.to_owned())]);
    let right = "a-b = \"=1.2.0\"\na = \"=1.2.3\"\n";
    let found = mistakes(&blocks, &file("// a 1.2\nf();\n"), right);
    assert_eq!(found, [""; 0]);
    let found = mistakes(&blocks, &file("// a 1.2\ng();\n"), right);
    assert_eq!(found.len(), 2, "{found:?}");
    let wrong = "a = \"=1.3.0\"\na-b = \"=1.2.0\"\n";
    let found = mistakes(&blocks, &file("// a 1.2\nf();\n"), wrong);
    assert_eq!(found.len(), 1, "{found:?}");
}
