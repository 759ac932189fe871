//! The order of the house: which file may import which, what is public, and what is published. All of it is read from
//! the sources, so it holds for code that no test runs.
//!
//! Each check is a function of a set of sources, so that its own tests can show it small libraries that are wrong.

use std::fmt::Write;

mod api;
mod arrows;
mod book;
mod comments;
mod library;
mod migration;
mod package;
mod runbook;

/// Fails with all that is wrong, and the rule that was broken.
#[track_caller]
fn none(mistakes: &[String], rule: &str) {
    let mut text = String::new();
    for mistake in mistakes {
        let _ = writeln!(text, "\n{mistake}");
    }
    assert!(
        mistakes.is_empty(),
        "{rule}; broken {} times:\n{text}",
        mistakes.len()
    );
}
