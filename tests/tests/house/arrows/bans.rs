//! What some rooms must not name.

use proc_macro2::{TokenStream, TokenTree};

use crate::arrows::{IMPURE, PURE, REDIS};
use crate::library::builds::{PRODUCT, lacking};
use crate::library::modules::Library;
use crate::library::paths::mentions;
use crate::library::resolve::Target;

/// Where the crate `redis` is named outside of its folder. A module of this name is another thing.
pub(crate) fn redis_elsewhere(library: &Library) -> Vec<String> {
    let mut mistakes = Vec::new();
    for mention in mentions(library) {
        let file = &library.file_of(mention.module).path;
        if file.starts_with(REDIS) {
            continue;
        }
        let path = &mention.path;
        let foreign = matches!(
            library.resolve(mention.module, path).target,
            Target::Foreign(_)
        );
        if foreign && path.names.first().is_some_and(|name| name == "redis") {
            let path = path.names.join("::");
            mistakes.push(format!(
                "{file}:{} names {path}; only {REDIS} may",
                mention.line
            ));
        }
    }
    mistakes
}

/// Where the protocol names what only the world outside has.
pub(crate) fn impure(library: &Library) -> Vec<String> {
    let mut mistakes = Vec::new();
    let in_tests = |index| {
        library
            .modules
            .iter()
            .any(|module| module.file == index && module.is_file && module.of_tests)
    };
    for (index, file) in library.files.iter().enumerate() {
        if !file.path.starts_with(PURE) || in_tests(index) {
            continue;
        }
        let hidden = lacking(PRODUCT, &file.syntax);
        let mut words = Vec::new();
        flatten(file.text.parse().expect("it was parsed before"), &mut words);
        words.retain(|word| !hidden.iter().any(|passage| passage.contains(&word.start)));
        for (at, word) in words.iter().enumerate() {
            for (banned, why) in IMPURE {
                // Behind `::` stands one name: in between are two colons.
                let mut parts = banned.split("::").enumerate();
                let named = |(nth, part): (usize, &str)| {
                    words
                        .get(at + 3 * nth)
                        .is_some_and(|word| word.text == part)
                };
                if parts.all(named) {
                    mistakes.push(format!("{}:{} names {banned}: {why}", file.path, word.line));
                }
            }
        }
    }
    mistakes
}

/// An identifier, or a sign.
struct Word {
    text: String,
    line: usize,
    start: usize,
}

fn flatten(tokens: TokenStream, words: &mut Vec<Word>) {
    for token in tokens {
        let (line, start) = (token.span().start().line, token.span().byte_range().start);
        let text = match token {
            TokenTree::Group(group) => {
                flatten(group.stream(), words);
                String::new()
            }
            // A text, such as documentation, names nothing.
            TokenTree::Literal(_) => String::new(),
            token => token.to_string(),
        };
        words.push(Word { text, line, start });
    }
}
