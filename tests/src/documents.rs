//! The documents of this repository: what stands in their blocks of code.

use std::fs;
use std::path::{Path, PathBuf};

/// A block of code between two fences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// What stands behind the fence up to a blank: `rust,no_run`, `sh`.
    pub language: String,
    /// What stands behind that.
    pub name: String,
    /// Its lines, without the indentation of the fence.
    pub text: String,
    /// Where it begins, counted from one.
    pub line: usize,
}

/// The folder of the workspace.
pub fn workspace() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = tests.parent().expect("a folder around tests");
    workspace.to_owned()
}

/// The text of a document, whose path is below the workspace.
///
/// # Panics
///
/// When it cannot be read.
#[track_caller]
pub fn document(path: &str) -> String {
    let file = workspace().join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The arguments of a command that a document has in a line of prose or a cell of a table, `cargo run --bin program -- arguments`: what
/// a test gives the program that it has built.
///
/// # Panics
///
/// When the document does not have it.
#[track_caller]
pub fn typed(path: &str, command: &str) -> Vec<String> {
    let text = document(path);
    assert!(
        text.contains(&format!("`{command}`")),
        "{path} has no `{command}`"
    );
    let (_, arguments) = command.split_once(" -- ").unwrap_or_default();
    arguments.split_whitespace().map(str::to_owned).collect()
}

/// The blocks of a text in Markdown, in its order.
///
/// # Panics
///
/// When a block has no end.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((line, fence)) = lines.next() {
        let Some(info) = fence.trim_start().strip_prefix("```") else {
            continue;
        };
        let indentation = &fence[..fence.len() - fence.trim_start().len()];
        let mut text = String::new();
        loop {
            let (_, inside) = lines
                .next()
                .unwrap_or_else(|| panic!("the block of line {line} has no end"));
            if inside.trim() == "```" {
                break;
            }
            text += inside.strip_prefix(indentation).unwrap_or(inside);
            text.push('\n');
        }
        let (language, name) = info.split_once(' ').unwrap_or((info, ""));
        blocks.push(Block {
            language: language.to_owned(),
            name: name.trim().to_owned(),
            text,
            line,
        });
    }
    blocks
}
