//! The difference of two texts, line by line.

use std::collections::BTreeSet;

/// `- ` before lines that only the first text has, `+ ` before those that only the second one has.
pub(crate) fn between(old: &str, new: &str) -> String {
    let (in_old, in_new): (BTreeSet<_>, BTreeSet<_>) =
        (old.lines().collect(), new.lines().collect());
    let mut text = String::new();
    let mut new_lines = new.lines().peekable();
    let mut take_new = |text: &mut String, until: Option<&str>| {
        while let Some(line) = new_lines.next_if(|line| Some(*line) != until) {
            if !in_old.contains(line) {
                text.push_str(&format!("+ {line}\n"));
            }
        }
        new_lines.next();
    };
    for line in old.lines() {
        if in_new.contains(line) {
            take_new(&mut text, Some(line));
        } else {
            text.push_str(&format!("- {line}\n"));
        }
    }
    take_new(&mut text, None);
    if text.is_empty() {
        text.push_str("the same lines in another order, or a line twice\n");
    }
    text
}
