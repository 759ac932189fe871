//! Checks braces. They mark the hash tag for Redis Cluster, but insert a value in most other
//! languages. A key written that way would be the same for every call.

use crate::template::path::{Path, PathError};

use super::{Parser, Piece, PieceKind};

/// The text between a `{` and its `}`.
struct Group {
    /// The byte at which its piece starts.
    start: usize,
    text: String,
    has_value: bool,
    /// The character before the brace, if it is `#` or `$`.
    sigil: Option<char>,
}

impl Parser<'_> {
    /// Allows at most one pair, with contents that are not meant to be a value.
    pub(super) fn check_braces(&mut self, pieces: &[Piece]) {
        let mut groups = 0;
        let mut broken = false;
        let mut open: Option<Group> = None;
        let mut before = None;
        let has_values = has_values(pieces);
        for piece in pieces {
            let PieceKind::Literal(text) = &piece.kind else {
                if let Some(group) = &mut open {
                    group.has_value = true;
                }
                before = None;
                continue;
            };
            for c in text.chars() {
                match (c, open.take()) {
                    ('{', None) => {
                        open = Some(Group {
                            start: piece.at.start,
                            text: String::new(),
                            has_value: false,
                            sigil: before.filter(|sigil| matches!(sigil, '#' | '$')),
                        });
                    }
                    ('}', Some(group)) => {
                        groups += 1;
                        if let Some(message) = self.brace_error(&group, has_values) {
                            broken = true;
                            self.push_error(group.start..piece.at.end, message);
                        }
                    }
                    ('{', Some(_)) | ('}', None) => {
                        let message = format!(
                            "unmatched `{c}`: braces mark the part of the key that \
                             Redis Cluster hashes; write one pair such as `{{tenant:<tenant>}}`, \
                             or none"
                        );
                        self.push_error(piece.at.clone(), message);
                        return;
                    }
                    (_, Some(mut group)) => {
                        group.text.push(c);
                        open = Some(group);
                    }
                    (_, None) => {}
                }
                before = Some(c);
            }
        }
        if open.is_some() {
            self.push_error(
                0..self.text.len(),
                "`{` is never closed: braces mark the part of the key that Redis Cluster hashes; \
                 write one pair such as `{tenant:<tenant>}`, or none"
                    .into(),
            );
        } else if groups > 1 && !broken {
            self.push_error(
                0..self.text.len(),
                format!(
                    "the key has {groups} pairs of braces: they mark the one part of the key that \
                     Redis Cluster hashes; keep one pair"
                ),
            );
        }
    }

    /// Returns an error for braces that are not a hash tag. `has_values` is for the whole template.
    fn brace_error(&self, group: &Group, has_values: bool) -> Option<String> {
        let Group {
            text,
            has_value,
            sigil,
            ..
        } = group;
        if *has_value {
            return None;
        }
        if text.is_empty() {
            return Some(format!(
                "`{{}}` is an empty hash tag: remove it, or write `{}` to insert a parameter",
                self.example()
            ));
        }
        let has_sigil = sigil.is_some() && self.closest_name(leading_word(text)).is_some();
        // A trailing colon means that a tag is intended.
        let on_purpose = text.strip_suffix(':').is_some_and(is_tag);
        let is_plain = has_values && is_tag(text) && !self.may_be_a_value(text);
        if !has_sigil && (on_purpose || is_plain) {
            return None;
        }
        let sigil = sigil.map_or(String::new(), String::from);
        let tag = (sigil.is_empty() && is_tag(text)).then_some(text.as_str());
        Some(format!(
            "`{sigil}{{{text}}}` inserts nothing: braces are literal, and mark the part of the key \
             that Redis Cluster hashes; {}",
            self.remedy(text, tag)
        ))
    }

    /// Returns true if a string that could be a tag could also be a value.
    fn may_be_a_value(&self, text: &str) -> bool {
        let word = leading_word(text);
        let rest = &text[word.len()..];
        if rest.is_empty() || rest.starts_with(':') {
            self.closest_name(word).is_some() || text.parse::<u64>().is_ok() || is_formatted(text)
        } else {
            // `stock-eu` is a tag, `item_id-1` is not.
            words(text).any(|word| self.is_known(word))
        }
    }

    /// Returns the remedy for `{text}`. `tag` is the text if a hash tag may be meant.
    fn remedy(&self, text: &str, tag: Option<&str>) -> String {
        if let Some(hidden) = words(text).find(|word| self.is_hidden(word)) {
            return self.unhide(hidden);
        }
        let example = self.example();
        let tag = tag.map(|tag| format!("`{{{tag}:}}` for a hash tag of that text"));
        let inside = text.trim();
        let (path, hint) = match Path::parse(inside) {
            Ok(_) => (inside, ""),
            Err(PathError::Format(_)) => {
                let end = inside.find(':').unwrap_or(inside.len());
                (&inside[..end], "a placeholder takes no format: ")
            }
            Err(PathError::Position) => {
                let insert = format!("`{example}` to insert a parameter");
                return format!(
                    "parameters are inserted by name, not by position: write {}",
                    either([Some(insert), tag])
                );
            }
            Err(_) if is_tag(text) => ("", ""),
            Err(_) => {
                let known = words(text).find_map(|word| self.closest_name(word));
                let known = known.map_or(example, |known| format!("<{known}>"));
                return format!(
                    "write `{known}` to insert the value; compute any other value before the call and \
                     pass it as a parameter"
                );
            }
        };
        let root = path.split('.').next().unwrap_or_default();
        let Some(meant) = self.closest_name(root) else {
            let insert = format!("`{example}` to insert a parameter");
            return format!("{hint}write {}", either([Some(insert), tag]));
        };
        let rest = &path[root.len()..];
        let alternatives = [
            Some(format!("`<{meant}{rest}>` to insert the value")),
            Some(format!(
                "`{{<{meant}{rest}>}}` to insert it and hash only it"
            )),
            tag.filter(|_| !self.is_known(root)),
        ];
        format!("{hint}write {}", either(alternatives))
    }
}

fn either<const N: usize>(alternatives: [Option<String>; N]) -> String {
    let alternatives: Vec<String> = alternatives.into_iter().flatten().collect();
    match alternatives.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{}, or {last}", rest.join(", ")),
        None => String::new(),
    }
}

pub(super) fn has_values(pieces: &[Piece]) -> bool {
    pieces
        .iter()
        .any(|piece| matches!(piece.kind, PieceKind::Placeholder(_)))
}

/// Returns true if the text could be a hash tag: it consists only of characters of tags, unlike
/// code such as `a + 1` or `A::B`.
fn is_tag(text: &str) -> bool {
    let is_tag_char = |c: char| match c {
        '_' | '-' | '/' | ':' | '@' | '%' => true,
        _ if c.is_ascii() => c.is_ascii_alphanumeric(),
        _ => !c.is_whitespace(),
    };
    !text.contains("::") && text.contains(char::is_alphanumeric) && text.chars().all(is_tag_char)
}

/// Returns true for `name:04` and `name:x`, the formats made of characters that tags may have.
fn is_formatted(text: &str) -> bool {
    text.split_once(':').is_some_and(|(_, format)| {
        let format = format.strip_prefix('-').unwrap_or(format);
        let kind = format.trim_start_matches(|c: char| c.is_ascii_digit());
        !format.is_empty() && ["", "o", "x", "X", "b", "e", "E", "p"].contains(&kind)
    })
}

/// Returns the identifier that `text` starts with, or an empty string.
pub(super) fn leading_word(text: &str) -> &str {
    let inside = text.strip_prefix("r#").unwrap_or(text);
    let length = inside.find(|c: char| !is_word_char(c));
    let end = text.len() - inside.len() + length.unwrap_or(inside.len());
    &text[..end]
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_word_char(c))
        .filter(|word| !word.is_empty())
}

fn is_word_char(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}
