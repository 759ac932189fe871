//! The code of other crates in the pages on migration compiles: each block is a file of
//! tests/migration, word for word.

use std::collections::BTreeSet;

use distlock_tests::documents::{blocks, document};

use crate::files::rust_files;

/// The pages on migration.
const PAGES: [&str; 2] = ["docs/migration.md", "docs/migration-databases.md"];

/// The block that is not compiled, because that crate needs protoc.
const NOT_COMPILED: &str = "// etcd-client 0.21\n";

/// Returns the first lines of the blocks without a file, and of the files without a block.
fn differences(document: &str, files: &[(String, String)]) -> Vec<String> {
    let mut blocks = blocks(document);
    blocks.retain(|block| block.language == "rust,ignore");
    let blocks = blocks.iter().map(|block| &*block.text);
    let blocks: BTreeSet<_> = blocks
        .filter(|text| !text.starts_with(NOT_COMPILED))
        .collect();
    let files = files.iter().map(|(_, text)| &**text).collect();
    let different = blocks.symmetric_difference(&files);
    different
        .filter_map(|text| text.lines().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn code_of_other_crates_is_compiled() {
    let mut files = rust_files("tests/migration");
    files.retain(|(file, _)| file != "lib.rs");
    let pages = PAGES.map(document).concat();
    assert_eq!(differences(&pages, &files), [""; 0]);
}

#[test]
fn differences_are_found() {
    let document = "```rust,ignore\n// a\n```\n```rust\n// ours\n```\n```rust,ignore\n// b\n```\n";
    let files = ["// a\n", "// c\n"].map(|text| (String::new(), text.to_owned()));
    assert_eq!(differences(document, &files), ["// b", "// c"]);
}
