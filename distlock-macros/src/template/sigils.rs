//! Checks for `#name`, `$name` and `:name`, which insert a value elsewhere, but are text here.

use super::braces::leading_word;
use super::{Parser, Piece, PieceKind};

impl Parser<'_> {
    /// Reports `#name`, `$name` and close misspellings; `/:name`, and `:name` at the key's start.
    pub(super) fn check_sigils(&mut self, pieces: &[Piece]) {
        for (nth, piece) in pieces.iter().enumerate() {
            let PieceKind::Literal(text) = &piece.kind else {
                continue;
            };
            let mut at = 0;
            while let Some(c) = text[at..].chars().next() {
                let rest = &text[at + c.len_utf8()..];
                // `check_braces` has already checked text in braces without a value.
                if c == '{'
                    && let Some(length) = rest.find(['{', '}'])
                    && rest[length..].starts_with('}')
                {
                    at += 1 + length + 1;
                    continue;
                }
                let word = leading_word(rest);
                let named = match c {
                    '#' | '$' => self.closest_name(word),
                    ':' if text[..at].ends_with('/') || (nth, at) == (0, 0) => {
                        self.known_name(word)
                    }
                    _ => None,
                };
                if let Some(named) = named {
                    let path = &rest[..path_length(rest)];
                    let message = self.inserts_nothing(c, path, &named);
                    self.push_error(piece.at.clone(), message);
                    at += path.len();
                }
                at += c.len_utf8();
            }
        }
    }

    fn inserts_nothing(&self, sigil: char, path: &str, named: &str) -> String {
        let instead = if self.is_hidden(named) {
            self.unhide(named)
        } else {
            let rest = &path[leading_word(path).len()..];
            format!("write `<{named}{rest}>` to insert the value")
        };
        format!("`{sigil}{path}` inserts nothing: {instead}")
    }

    /// Returns the remedy for a name that a pattern binds.
    pub(super) fn unhide(&self, name: &str) -> String {
        format!(
            "`#[async_trait]` hides `{name}`, because a pattern binds it: give the parameter a \
             name and insert its part, such as `<order.id>`"
        )
    }
}

/// Returns the length of the leading `name.field.method()`.
fn path_length(text: &str) -> usize {
    let mut length = leading_word(text).len();
    while let Some(step) = text[length..].strip_prefix('.') {
        let name = leading_word(step);
        if name.is_empty() {
            break;
        }
        length += 1 + name.len();
        if text[length..].starts_with("()") {
            length += 2;
        }
    }
    length
}
