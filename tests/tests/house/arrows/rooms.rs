//! The rooms of the house, and the arrows that run up.

use crate::arrows::ROOMS;
use crate::arrows::graph::Arrow;
use crate::library::modules::Library;

/// Where a file stands in the list of rooms.
fn room(file: &str) -> Option<usize> {
    ROOMS.iter().position(|(_, files)| {
        files.iter().any(|pattern| match pattern.strip_suffix('/') {
            Some(folder) => {
                let below = file.strip_prefix(folder);
                below.is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
            }
            None => *pattern == file || (*pattern == "*.rs" && !file.contains('/')),
        })
    })
}

/// Arrows that run up, or to `lib.rs`, and files that are in no room.
pub(crate) fn upward(library: &Library, arrows: &[Arrow]) -> Vec<String> {
    let mut mistakes = Vec::new();
    for file in library.files.iter().map(|file| &file.path) {
        if room(file).is_none() {
            mistakes.push(format!(
                "{file} is in no room: give its folder one in the list `ROOMS`"
            ));
        }
    }
    for arrow in arrows.iter().filter(|arrow| arrow.from != "lib.rs") {
        if arrow.to == "lib.rs" {
            mistakes.push(format!("{arrow}, which is a table of contents"));
            continue;
        }
        let (Some(from), Some(to)) = (room(&arrow.from), room(&arrow.to)) else {
            continue;
        };
        if to < from {
            mistakes.push(format!(
                "{arrow}: up from {} to {}",
                ROOMS[from].0, ROOMS[to].0
            ));
        }
    }
    mistakes
}
