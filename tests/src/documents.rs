//! The code blocks of the documents in this repository.

use std::fs;
use std::path::{Path, PathBuf};

/// A block of code between two fences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The text after the fence, up to the first blank: `rust,no_run`, `sh`.
    pub language: String,
    /// The rest of the fence line.
    pub name: String,
    /// The lines of the block, without the indentation of the fence.
    pub text: String,
    /// The line number of the fence, counted from one.
    pub line: usize,
}

/// Returns the folder of the workspace.
pub fn workspace() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = tests.parent().expect("a folder around tests");
    workspace.to_owned()
}

/// Returns the text of the document at `path`, relative to the workspace.
///
/// # Panics
///
/// Panics if the document cannot be read.
#[track_caller]
pub fn document(path: &str) -> String {
    let file = workspace().join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the arguments of a command in a document's prose or table, for example
/// `cargo run --bin program -- arguments`. A test passes them to the program that it has built.
///
/// # Panics
///
/// Panics if the document does not contain the command.
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

/// Returns what each command `ACL SETUSER distlock` of a text gives and takes, after the password.
pub fn acl_rules(text: &str) -> Vec<Vec<&str>> {
    let commands = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("ACL SETUSER distlock "));
    let rules = commands.map(|command| command.trim_start_matches("on >PASSWORD ").split(' '));
    rules.map(Iterator::collect).collect()
}

/// Returns the code blocks of a Markdown text, in order.
///
/// # Panics
///
/// Panics if a block has no end.
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
