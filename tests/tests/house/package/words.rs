//! Words that do not belong into the package.

use std::collections::BTreeSet;
use std::ops::Range;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::library::Sources;
use crate::library::builds::extent;
use crate::library::modules::is_door;
use crate::package::{PROOF, SABOTAGE, SABOTAGED};

/// Files whose path tells of proof.
pub(crate) fn in_paths(files: &[String]) -> Vec<String> {
    let mut mistakes = Vec::new();
    for file in files {
        for word in PROOF
            .iter()
            .chain([&SABOTAGE])
            .filter(|word| file.to_lowercase().contains(**word))
        {
            mistakes.push(format!("{file}: its name has `{word}` in it"));
        }
    }
    mistakes
}

/// Names in code that tell of proof; saboteurs have a check of their own. A `mod` line that leads out of the package is a door, and no part of it.
pub(crate) fn in_code(sources: &Sources) -> Vec<String> {
    let mut mistakes = BTreeSet::new();
    for (path, text) in sources {
        for word in words(path, text).iter().filter(|word| !word.is_text) {
            let name = word.text.to_lowercase();
            for proof in PROOF.iter().filter(|proof| name.contains(**proof)) {
                mistakes.insert((
                    path,
                    word.line,
                    format!("`{}` has `{proof}` in it", word.text),
                ));
            }
        }
    }
    told(mistakes)
}

/// Where code names saboteurs, also in a text such as the name of a variable of the environment. In one file it must.
pub(crate) fn of_saboteurs(sources: &Sources) -> Vec<String> {
    let mut mistakes = BTreeSet::new();
    let mut is_known = false;
    for (path, text) in sources {
        for word in words(path, text) {
            if !word.text.to_lowercase().contains(SABOTAGE) {
                continue;
            }
            if path == SABOTAGED {
                is_known = true;
            } else {
                mistakes.insert((path, word.line, format!("names {}", word.text)));
            }
        }
    }
    let mut mistakes = told(mistakes);
    if !is_known {
        mistakes.push(format!(
            "{SABOTAGED} does not name `sabotage`: no saboteur could break a rule"
        ));
    }
    mistakes
}

fn told(mistakes: BTreeSet<(&String, usize, String)>) -> Vec<String> {
    let told = |(path, line, what)| format!("{path}:{line} {what}");
    mistakes.into_iter().map(told).collect()
}

/// A name, or a text that is not documentation.
struct Word {
    text: String,
    line: usize,
    is_text: bool,
}

fn words(path: &str, text: &str) -> Vec<Word> {
    let syntax = syn::parse_str(text)
        .unwrap_or_else(|error| panic!("{path}:{}: {error}", error.span().start().line));
    let mut doors = Doors {
        path,
        passages: Vec::new(),
    };
    doors.visit_file(&syntax);
    let mut words = Vec::new();
    collect(
        text.parse().expect("it was parsed before"),
        &doors.passages,
        &mut words,
    );
    words
}

fn collect(tokens: TokenStream, doors: &[Range<usize>], words: &mut Vec<Word>) {
    let mut of_documentation = false;
    for token in tokens {
        let (start, line) = (token.span().byte_range().start, token.span().start().line);
        if doors.iter().any(|door| door.contains(&start)) {
            continue;
        }
        let mut word = |text: String, is_text| {
            words.push(Word {
                text,
                line,
                is_text,
            })
        };
        match token {
            TokenTree::Group(group) => collect(group.stream(), doors, words),
            TokenTree::Ident(name) => {
                of_documentation = name == "doc";
                word(name.to_string(), false);
            }
            TokenTree::Literal(text) if !of_documentation => word(text.to_string(), true),
            TokenTree::Literal(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// The doors of a file.
struct Doors<'a> {
    path: &'a str,
    passages: Vec<Range<usize>>,
}

impl<'ast> Visit<'ast> for Doors<'_> {
    fn visit_item_mod(&mut self, block: &'ast syn::ItemMod) {
        if is_door(self.path, block) {
            self.passages.extend(extent(block));
        } else {
            visit::visit_item_mod(self, block);
        }
    }
}
