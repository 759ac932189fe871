//! Key templates: `"{tenant:<order.tenant>}:stock:<sku>"` becomes literal parts and expressions.

use std::fmt::Write as _;
use std::ops::Range;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt as _;
use syn::{Index, LitStr, Token};

use crate::errors::{Errors, list, nearest};
use crate::limits::MAX_KEY;
use crate::template::path::{Path, PathError, PathStep};

/// The names with which a placeholder may start.
pub(crate) struct Scope {
    /// The function's name, for messages.
    pub(crate) function: Ident,
    /// Parameters, names bound by their patterns, const generics.
    pub(crate) names: Vec<Ident>,
    pub(crate) receiver: Option<Token![self]>,
    /// `#[async_trait]` has replaced patterns, so the names that they bind are not in `names`.
    pub(crate) patterns_are_hidden: bool,
    /// The names that those patterns bind, as far as they can be found.
    pub(crate) hidden: Vec<Ident>,
}

/// The parts of a key.
pub(crate) struct Template {
    pub(crate) parts: Vec<Part>,
    /// Enough for every legal key, so that building a key allocates once, whatever its values are.
    pub(crate) capacity: usize,
}

pub(crate) enum Part {
    Literal(String),
    Value {
        /// The text between the angle brackets, as written.
        placeholder: String,
        expr: TokenStream,
        /// The first character of the text before the next value. The written value must not
        /// contain it. `None` if no written value contains it anyway.
        end: Option<char>,
    },
}

impl Template {
    /// Returns true if the key needs this parameter.
    pub(crate) fn mentions(&self, parameter: &Ident) -> bool {
        let plain = unraw(parameter);
        self.parts.iter().any(|part| match part {
            Part::Literal(_) => false,
            Part::Value { placeholder, .. } => {
                let root = placeholder.split('.').next().unwrap_or_default();
                root.strip_prefix("r#").unwrap_or(root) == plain
            }
        })
    }

    /// Returns a text that equal templates share. Braces around the whole key change nothing.
    pub(crate) fn name(&self) -> String {
        let parts = self.parts.iter().map(|part| match part {
            Part::Literal(text) => text.replace('<', "<<"),
            Part::Value { placeholder, .. } => format!("<{}>", placeholder.replace("r#", "")),
        });
        let name: String = parts.collect();
        let inside = name
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'));
        inside.map(str::to_owned).unwrap_or(name)
    }

    pub(crate) fn parse(key: &LitStr, scope: &Scope, errors: &mut Errors) -> Template {
        let mut parser = Parser {
            key,
            text: &key.value(),
            scope,
            errors,
            is_malformed: false,
        };
        let pieces = parser.pieces();
        parser.check_length(&pieces);
        parser.check_characters(&pieces);
        // After an unmatched angle bracket, text and placeholders cannot be distinguished.
        if !parser.is_malformed {
            parser.check_braces(&pieces);
            parser.check_sigils(&pieces);
            parser.check_ends(&pieces);
        }
        parser.build(pieces)
    }
}

/// A section of the template, with its byte range in the text.
struct Piece {
    at: Range<usize>,
    kind: PieceKind,
}

enum PieceKind {
    /// Literal text after unescaping.
    Literal(String),
    /// The text between the angle brackets.
    Placeholder(String),
}

struct Parser<'a> {
    key: &'a LitStr,
    text: &'a str,
    scope: &'a Scope,
    errors: &'a mut Errors,
    /// An unmatched angle bracket was found.
    is_malformed: bool,
}

impl Parser<'_> {
    /// Returns the span of `at` in the literal (nightly), otherwise that of the whole literal.
    fn span(&self, at: Range<usize>) -> Span {
        let token = self.key.token();
        let quoted_verbatim = token.to_string() == format!("\"{}\"", self.text);
        quoted_verbatim
            .then(|| token.subspan(at.start + 1..=at.end))
            .flatten()
            .unwrap_or_else(|| self.key.span())
    }

    fn push_error(&mut self, at: Range<usize>, message: String) {
        let span = self.span(at);
        self.errors.push_at(span, message);
    }

    /// Splits the text at placeholders and resolves `<<` and `>>`.
    fn pieces(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut literal_start = 0;
        let mut at = 0;
        while let Some(c) = self.text[at..].chars().next() {
            let rest = &self.text[at..];
            if rest.starts_with("<<") || rest.starts_with(">>") {
                literal.push(c);
                at += 2;
            } else if c == '<' {
                let end = rest[1..].find(['<', '>']).map(|end| at + 1 + end);
                let Some(end) = end.filter(|&end| self.text[end..].starts_with('>')) else {
                    self.is_malformed = true;
                    self.push_error(
                        at..at + 1,
                        "`<` opens a placeholder that is never closed: write `<name>` to insert a \
                         parameter, or `<<` for a literal `<`"
                            .into(),
                    );
                    at = end.unwrap_or(self.text.len());
                    continue;
                };
                if !literal.is_empty() {
                    pieces.push(Piece {
                        at: literal_start..at,
                        kind: PieceKind::Literal(std::mem::take(&mut literal)),
                    });
                }
                pieces.push(Piece {
                    at: at..end + 1,
                    kind: PieceKind::Placeholder(self.text[at + 1..end].to_owned()),
                });
                at = end + 1;
                literal_start = at;
            } else {
                if c == '>' {
                    self.is_malformed = true;
                    self.push_error(
                        at..at + 1,
                        "unmatched `>`: write `<name>` to insert a parameter, or `>>` \
                         for a literal `>`"
                            .into(),
                    );
                }
                literal.push(c);
                at += c.len_utf8();
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece {
                at: literal_start..at,
                kind: PieceKind::Literal(literal),
            });
        }
        pieces
    }

    fn check_length(&mut self, pieces: &[Piece]) {
        if self.text.is_empty() {
            self.push_error(
                0..0,
                "the key is empty: write a name for what is locked, such as \
                 `key = \"inventory:<item_id>\"`"
                    .into(),
            );
        }
        let length: usize = pieces.iter().map(|piece| piece.kind.min_length()).sum();
        if length > MAX_KEY {
            self.push_error(
                0..self.text.len(),
                format!(
                    "the key is at least {length} bytes long: a key has at most {MAX_KEY} \
                     bytes; write a shorter one"
                ),
            );
        }
    }

    fn check_characters(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            let PieceKind::Literal(text) = &piece.kind else {
                continue;
            };
            if let Some(control) = text.chars().find(|c| c.is_control()) {
                self.push_error(
                    piece.at.clone(),
                    format!(
                        "the key contains the control character {control:?}: write a key of \
                         printable characters"
                    ),
                );
            }
        }
    }

    /// Checks that every value is delimited. Otherwise, two lists of values could share a key.
    fn check_ends(&mut self, pieces: &[Piece]) {
        for pair in pieces.windows(2) {
            let [value, next] = pair else { continue };
            let PieceKind::Placeholder(inside) = &value.kind else {
                continue;
            };
            match &next.kind {
                PieceKind::Placeholder(other) => self.push_error(
                    value.at.start..next.at.end,
                    format!(
                        "nothing separates `<{inside}>` from `<{other}>`, so different values would \
                         share a key: write `<{inside}>:<{other}>`"
                    ),
                ),
                PieceKind::Literal(text) if text.starts_with('%') && next.at.end < self.text.len() => {
                    self.push_error(
                        next.at.clone(),
                        format!(
                            "the `%` after `<{inside}>` would be read as a part of the value, where \
                             it begins an escape: put another character before it, such as \
                             `<{inside}>:%`"
                        ),
                    );
                }
                PieceKind::Literal(_) => {}
            }
        }
    }

    fn build(&mut self, pieces: Vec<Piece>) -> Template {
        // The length of a value and of its escapes is known only when it is written.
        let capacity = match pieces.as_slice() {
            [] => 0,
            [piece] if matches!(piece.kind, PieceKind::Literal(_)) => piece.kind.min_length(),
            _ => MAX_KEY,
        };
        let ends: Vec<Option<char>> = (0..pieces.len()).map(|at| end(&pieces[at..])).collect();
        let parts = pieces
            .into_iter()
            .zip(ends)
            .filter_map(|(piece, end)| match piece.kind {
                PieceKind::Literal(text) => Some(Part::Literal(text)),
                PieceKind::Placeholder(inside) => {
                    let expr = self
                        .resolve(&inside, piece.at.clone())
                        .map_err(|message| self.push_error(piece.at, message))
                        .ok()?;
                    Some(Part::Value {
                        placeholder: inside,
                        expr,
                        end,
                    })
                }
            })
            .collect();
        Template { parts, capacity }
    }

    /// Returns the expression for a placeholder.
    fn resolve(&self, inside: &str, at: Range<usize>) -> Result<TokenStream, String> {
        let path = Path::parse(inside).map_err(|error| self.explain(inside, &error))?;
        let span = self.span(at);
        let root = if path.root == "self" {
            let receiver = self.scope.receiver.ok_or_else(|| self.no_self(inside))?;
            // The parameter's hygiene with the placeholder's position also works if a
            // `macro_rules!` wrote the function.
            Token![self](span.resolved_at(receiver.span)).into_token_stream()
        } else {
            let mut parameter = self
                .find(&path.root)
                .ok_or_else(|| self.unknown(inside, &path.root))?
                .clone();
            parameter.set_span(span.resolved_at(parameter.span()));
            parameter.into_token_stream()
        };
        let mut expr = root;
        for step in path.steps {
            expr.extend(match step {
                PathStep::Field(name) => {
                    // With the user's span, rustc lists the available fields, and the message does
                    // not end in "this error originates in the attribute macro".
                    let name = identifier(&name, span);
                    quote::quote_spanned!(span=> .#name)
                }
                PathStep::Index(index) => {
                    let index = Index { index, span };
                    quote::quote_spanned!(span=> .#index)
                }
                PathStep::Call(name) => {
                    let name = identifier(&name, span);
                    quote::quote_spanned!(span=> .#name())
                }
            });
        }
        // The operator has the placeholder's position too, so that errors underline the literal.
        let reference = Token![&](span);
        Ok(quote!(#reference #expr))
    }

    /// Returns the parameter of that name, raw or not.
    fn find(&self, name: &str) -> Option<&Ident> {
        let plain = name.strip_prefix("r#").unwrap_or(name);
        self.scope.names.iter().find(|known| unraw(known) == plain)
    }

    fn is_hidden(&self, name: &str) -> bool {
        self.scope.hidden.iter().any(|hidden| unraw(hidden) == name)
    }

    fn is_known(&self, word: &str) -> bool {
        self.known_name(word).is_some()
    }

    /// Returns the names with which a placeholder can start, including those that a pattern hides.
    fn names(&self) -> Vec<String> {
        let receiver = self.scope.receiver.map(|_| "self".to_owned());
        let names = self.scope.names.iter().chain(&self.scope.hidden);
        receiver.into_iter().chain(names.map(unraw)).collect()
    }

    /// Returns the name that equals `word`.
    fn known_name(&self, word: &str) -> Option<String> {
        let plain = word.strip_prefix("r#").unwrap_or(word);
        self.names().into_iter().find(|name| name == plain)
    }

    /// Returns the name that equals `word`, or is close to it.
    fn closest_name(&self, word: &str) -> Option<String> {
        self.known_name(word).or_else(|| {
            let names = self.names();
            nearest(word, names.iter().map(String::as_str)).map(str::to_owned)
        })
    }

    fn no_self(&self, inside: &str) -> String {
        format!(
            "`<{inside}>`: `{}` has no `self`: write `{}`, or make it a method",
            self.scope.function,
            self.example()
        )
    }

    fn unknown(&self, inside: &str, root: &str) -> String {
        let receiver = self.scope.receiver.map(|_| "self".to_owned());
        let names = receiver
            .into_iter()
            .chain(self.scope.names.iter().map(unraw))
            .collect::<Vec<String>>();
        let known = list(names.iter().map(String::as_str));
        let mut message = format!(
            "`<{inside}>`: `{}` has no parameter `{root}`",
            self.scope.function
        );
        let _ = if self.scope.patterns_are_hidden {
            write!(
                message,
                "; `#[async_trait]` hides the names bound by a pattern: give the parameter a name \
                 and destructure it in the body"
            )
        } else if names.is_empty() {
            write!(
                message,
                "; it has none: add the parameter, or leave the placeholder out if the lock is \
                 the same for every call"
            )
        } else if let Some(near) = nearest(root, names.iter().map(String::as_str)) {
            let fixed = format!("{near}{}", &inside[root.len()..]);
            write!(message, "; it has {known}: did you mean `<{fixed}>`?")
        } else if self.scope.receiver.is_some() {
            write!(
                message,
                "; it has {known}: write `<self.{inside}>` if that is a field of `self`; the key \
                 is made before the body runs"
            )
        } else {
            write!(
                message,
                "; it has {known}: insert a parameter, such as `<{}>`, because the key is made \
                 before the body runs",
                names[0]
            )
        };
        message
    }

    fn explain(&self, inside: &str, error: &PathError) -> String {
        match error {
            PathError::Empty => format!(
                "`<>` names no parameter: write `{}`, or `<<` and `>>` for literal angle brackets",
                self.example()
            ),
            PathError::Position => format!(
                "`<{inside}>`: parameters are inserted by name, not by position: write `{}`",
                self.example()
            ),
            PathError::Format(path) => format!(
                "`<{inside}>`: a placeholder takes no format, because its value is inserted by \
                 `Display`: write `<{path}>`"
            ),
            PathError::Other => format!(
                "`<{inside}>` is not a placeholder: write a parameter or `self`, then fields or \
                 method calls without arguments, such as `<item_id>`, `<order.id>` or \
                 `<self.tenant()>`; compute any other value before the call and pass it as a parameter"
            ),
        }
    }

    /// Returns a placeholder that would be correct here.
    fn example(&self) -> String {
        match self.scope.names.first() {
            Some(name) => format!("<{}>", unraw(name)),
            None => "<name>".to_owned(),
        }
    }
}

/// Returns the first character after the leading value of `pieces`, unless no value contains it.
fn end(pieces: &[Piece]) -> Option<char> {
    match pieces {
        [_, text, _, ..] => match &text.kind {
            PieceKind::Literal(text) => text.chars().next(),
            PieceKind::Placeholder(_) => None,
        },
        _ => None,
    }
    .filter(|end| !matches!(end, ':' | '{' | '}') && !end.is_whitespace())
}

impl PieceKind {
    /// Returns the minimum length in bytes. A value has at least one byte.
    fn min_length(&self) -> usize {
        match self {
            PieceKind::Literal(text) => text.len(),
            PieceKind::Placeholder(_) => 1,
        }
    }
}

fn identifier(name: &str, span: Span) -> Ident {
    match name.strip_prefix("r#") {
        Some(plain) => Ident::new_raw(plain, span),
        None if syn::parse_str::<Ident>(name).is_err() => Ident::new_raw(name, span),
        None => Ident::new(name, span),
    }
}

fn unraw(name: &Ident) -> String {
    name.unraw().to_string()
}

mod braces;
mod path;
mod sigils;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
