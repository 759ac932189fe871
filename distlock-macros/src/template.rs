//! Key templates: `"{tenant:<order.tenant>}:stock:<sku>"` becomes literal parts and expressions.

use std::fmt::Write as _;
use std::ops::Range;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt as _;
use syn::parse::Parser as _;
use syn::{Index, LitStr, Token};

use crate::mistakes::{Mistakes, list, nearest};

/// The runtime's limit for a whole key.
const LONGEST_KEY: usize = 512;

/// Room for a value whose length nobody knows yet: a number, a uuid.
const TYPICAL_VALUE: usize = 36;

/// What a placeholder may start with.
pub(crate) struct Scope {
    /// The function's name, for messages.
    pub(crate) function: Ident,
    /// Parameters, names bound by their patterns, const generics.
    pub(crate) names: Vec<Ident>,
    pub(crate) receiver: Option<Token![self]>,
    /// `#[async_trait]` has taken patterns apart, so names bound by them are not in `names`.
    pub(crate) patterns_are_hidden: bool,
}

/// How to build the key.
pub(crate) struct Template {
    pub(crate) parts: Vec<Part>,
    /// Enough for the literal parts and usual values.
    pub(crate) capacity: usize,
}

pub(crate) enum Part {
    Literal(String),
    Value {
        /// As written, without its angle brackets.
        placeholder: String,
        expr: TokenStream,
    },
}

impl Template {
    pub(crate) fn parse(key: &LitStr, scope: &Scope, mistakes: &mut Mistakes) -> Template {
        let mut parser = Parser {
            key,
            text: &key.value(),
            scope,
            mistakes,
        };
        let pieces = parser.pieces();
        parser.check_length(&pieces);
        parser.check_characters(&pieces);
        parser.check_braces(&pieces);
        parser.plan(pieces)
    }
}

/// A stretch of the template, `at` its bytes in the text.
struct Piece {
    at: Range<usize>,
    kind: Kind,
}

enum Kind {
    /// Unescaped.
    Literal(String),
    /// What stands between the angle brackets.
    Placeholder(String),
}

struct Parser<'a> {
    key: &'a LitStr,
    text: &'a str,
    scope: &'a Scope,
    mistakes: &'a mut Mistakes,
}

impl Parser<'_> {
    /// `at` inside the literal where the compiler can tell (nightly), else the whole literal.
    fn span(&self, at: Range<usize>) -> Span {
        let token = self.key.token();
        let quoted_verbatim = token.to_string() == format!("\"{}\"", self.text);
        quoted_verbatim
            .then(|| token.subspan(at.start + 1..=at.end))
            .flatten()
            .unwrap_or_else(|| self.key.span())
    }

    fn mistake(&mut self, at: Range<usize>, message: String) {
        let span = self.span(at);
        self.mistakes.at(span, message);
    }

    /// Splits at placeholders and resolves `<<` and `>>`.
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
                    self.mistake(
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
                        kind: Kind::Literal(std::mem::take(&mut literal)),
                    });
                }
                pieces.push(Piece {
                    at: at..end + 1,
                    kind: Kind::Placeholder(self.text[at + 1..end].to_owned()),
                });
                at = end + 1;
                literal_start = at;
            } else {
                if c == '>' {
                    self.mistake(
                        at..at + 1,
                        "`>` closes no placeholder: write `<name>` to insert a parameter, or `>>` \
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
                kind: Kind::Literal(literal),
            });
        }
        pieces
    }

    fn check_length(&mut self, pieces: &[Piece]) {
        if self.text.is_empty() {
            self.mistake(
                0..0,
                "the key is empty: write a name for what is locked, such as \
                 `key = \"inventory:<item_id>\"`"
                    .into(),
            );
        }
        let length: usize = pieces.iter().map(|piece| piece.kind.least_length()).sum();
        if length > LONGEST_KEY {
            self.mistake(
                0..self.text.len(),
                format!(
                    "the key is at least {length} bytes long: a key has at most {LONGEST_KEY} \
                     bytes, write a shorter one"
                ),
            );
        }
    }

    fn check_characters(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            let Kind::Literal(text) = &piece.kind else {
                continue;
            };
            if let Some(control) = text.chars().find(|c| c.is_control()) {
                self.mistake(
                    piece.at.clone(),
                    format!(
                        "the key contains the control character {control:?}: write a key of \
                         printable characters"
                    ),
                );
            }
        }
    }

    /// Braces are a Redis Cluster hash tag: at most one pair, with something in it.
    fn check_braces(&mut self, pieces: &[Piece]) {
        let mut groups = 0;
        let mut interpolations = 0;
        let mut broken = false;
        // What stands in the open group: where it starts, its text, is a placeholder among it.
        let mut open: Option<(usize, String, bool)> = None;
        for piece in pieces {
            let Kind::Literal(text) = &piece.kind else {
                if let Some((_, _, has_value)) = &mut open {
                    *has_value = true;
                }
                continue;
            };
            for c in text.chars() {
                match (c, open.take()) {
                    ('{', None) => open = Some((piece.at.start, String::new(), false)),
                    ('}', Some((start, content, has_value))) => {
                        groups += 1;
                        let at = start..piece.at.end;
                        if !has_value && self.is_interpolation(&content) {
                            interpolations += 1;
                            self.mistake(at, braces_do_not_interpolate(&content));
                        } else if !has_value && content.is_empty() {
                            broken = true;
                            let example = self.example();
                            self.mistake(
                                at,
                                format!(
                                    "`{{}}` is an empty hash tag: remove it, or write \
                                     `{example}` to insert a parameter"
                                ),
                            );
                        }
                    }
                    ('{', Some(_)) | ('}', None) => {
                        let mistake = format!(
                            "this `{c}` has no partner: braces mark the part of the key that \
                             Redis Cluster hashes, write one pair such as `{{tenant:<tenant>}}`, \
                             or none"
                        );
                        self.mistake(piece.at.clone(), mistake);
                        return;
                    }
                    (_, Some((start, mut content, has_value))) => {
                        content.push(c);
                        open = Some((start, content, has_value));
                    }
                    (_, None) => {}
                }
            }
        }
        if open.is_some() {
            self.mistake(
                0..self.text.len(),
                "`{` is never closed: braces mark the part of the key that Redis Cluster hashes, \
                 write one pair such as `{tenant:<tenant>}`, or none"
                    .into(),
            );
        } else if groups > 1 && interpolations == 0 && !broken {
            self.mistake(
                0..self.text.len(),
                format!(
                    "the key has {groups} pairs of braces: they mark the one part of the key that \
                     Redis Cluster hashes, keep one pair"
                ),
            );
        }
    }

    /// Whether `{content}` looks like an attempt to insert a value.
    fn is_interpolation(&self, content: &str) -> bool {
        Path::parse(content)
            .is_ok_and(|path| path.root == "self" || self.find(&path.root).is_some())
    }

    fn plan(&mut self, pieces: Vec<Piece>) -> Template {
        let capacity = pieces
            .iter()
            .map(|piece| match &piece.kind {
                Kind::Literal(text) => text.len(),
                Kind::Placeholder(_) => TYPICAL_VALUE,
            })
            .sum();
        let parts = pieces
            .into_iter()
            .filter_map(|piece| match piece.kind {
                Kind::Literal(text) => Some(Part::Literal(text)),
                Kind::Placeholder(inside) => {
                    let expr = self
                        .resolve(&inside, piece.at.clone())
                        .map_err(|message| self.mistake(piece.at, message))
                        .ok()?;
                    Some(Part::Value {
                        placeholder: inside,
                        expr,
                    })
                }
            })
            .collect();
        Template { parts, capacity }
    }

    /// The expression that a placeholder stands for.
    fn resolve(&self, inside: &str, at: Range<usize>) -> Result<TokenStream, String> {
        let path = Path::parse(inside).map_err(|mistake| self.explain(inside, &mistake))?;
        let span = self.span(at);
        let root = if path.root == "self" {
            let receiver = self.scope.receiver.ok_or_else(|| self.no_self(inside))?;
            // Hygiene of the parameter, place of the placeholder: also right when a
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
                Step::Field(name) => {
                    // A macro's span, or rustc offers to replace the whole literal by the name of
                    // a similar field.
                    let name = identifier(&name, Span::mixed_site().located_at(span));
                    quote::quote_spanned!(span=> .#name)
                }
                Step::Index(index) => {
                    let index = Index { index, span };
                    quote::quote_spanned!(span=> .#index)
                }
                Step::Call(name) => {
                    let name = identifier(&name, span);
                    quote::quote_spanned!(span=> .#name())
                }
            });
        }
        // The operator takes the placeholder's place too, so that errors underline the literal.
        let reference = Token![&](span);
        Ok(quote!(#reference #expr))
    }

    /// The parameter of that name, raw or not.
    fn find(&self, name: &str) -> Option<&Ident> {
        let plain = name.strip_prefix("r#").unwrap_or(name);
        self.scope.names.iter().find(|known| unraw(known) == plain)
    }

    fn no_self(&self, inside: &str) -> String {
        format!(
            "`<{inside}>`: `{}` has no `self`: write `{}`, or make it a method",
            self.scope.function,
            self.example()
        )
    }

    fn unknown(&self, inside: &str, root: &str) -> String {
        let names: Vec<String> = self.scope.names.iter().map(unraw).collect();
        let mut message = format!(
            "`<{inside}>`: `{}` has no parameter `{root}`",
            self.scope.function
        );
        let _ = if self.scope.patterns_are_hidden {
            write!(
                message,
                "; `#[async_trait]` hides the names bound by a pattern: give the parameter a name \
                 and take it apart in the body"
            )
        } else if names.is_empty() {
            write!(
                message,
                ", it has none: add the parameter, or leave the placeholder out if the lock is \
                 the same for every call"
            )
        } else if let Some(near) = nearest(root, names.iter().map(String::as_str)) {
            let fixed = format!("{near}{}", &inside[root.len()..]);
            let known = list(names.iter().map(String::as_str));
            write!(message, ", it has {known}: did you mean `<{fixed}>`?")
        } else {
            let known = list(names.iter().map(String::as_str));
            write!(message, ", it has {known}: write `<{}>`", names[0])
        };
        message
    }

    fn explain(&self, inside: &str, mistake: &NotAPath) -> String {
        match mistake {
            NotAPath::Empty => format!(
                "`<>` names no parameter: write `{}`, or `<<` and `>>` for literal angle brackets",
                self.example()
            ),
            NotAPath::Position => format!(
                "`<{inside}>`: parameters are inserted by name, not by position: write `{}`",
                self.example()
            ),
            NotAPath::Format(path) => format!(
                "`<{inside}>`: a placeholder takes no format, its value is inserted by `Display`: \
                 write `<{path}>`"
            ),
            NotAPath::Other => format!(
                "`<{inside}>` is not a placeholder: write a parameter or `self`, then fields or \
                 method calls without arguments, such as `<item_id>`, `<order.id>` or \
                 `<self.tenant()>`; pass what takes more than that as a parameter"
            ),
        }
    }

    /// A placeholder that would be right here.
    fn example(&self) -> String {
        match self.scope.names.first() {
            Some(name) => format!("<{}>", unraw(name)),
            None => "<name>".to_owned(),
        }
    }
}

impl Kind {
    /// A value has at least one byte.
    fn least_length(&self) -> usize {
        match self {
            Kind::Literal(text) => text.len(),
            Kind::Placeholder(_) => 1,
        }
    }
}

fn braces_do_not_interpolate(content: &str) -> String {
    format!(
        "`{{{content}}}` inserts nothing: braces are literal, they mark the part of the key that \
         Redis Cluster hashes; write `<{content}>` to insert the value, or `{{<{content}>}}` to \
         insert it and hash only it"
    )
}

/// `root.field.0.method()`
struct Path {
    root: String,
    steps: Vec<Step>,
}

enum Step {
    Field(String),
    Index(u32),
    Call(String),
}

/// Why a text is not a [`Path`].
enum NotAPath {
    Empty,
    Position,
    /// With a format after the path.
    Format(String),
    Other,
}

impl Path {
    fn parse(text: &str) -> Result<Path, NotAPath> {
        if text.is_empty() {
            return Err(NotAPath::Empty);
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NotAPath::Position);
        }
        if let Some((path, _)) = text.split_once(':')
            && Path::parse(path).is_ok()
            && !text.contains("::")
        {
            return Err(NotAPath::Format(path.to_owned()));
        }
        let mut steps = text.split('.');
        let root = steps.next().unwrap_or_default();
        if !is_root(root) {
            return Err(NotAPath::Other);
        }
        let steps = steps
            .map(|step| {
                if let Some(name) = step.strip_suffix("()") {
                    is_name(name).then(|| Step::Call(name.to_owned()))
                } else if step.starts_with(|c: char| c.is_ascii_digit()) {
                    step.parse().ok().map(Step::Index)
                } else {
                    is_name(step).then(|| Step::Field(step.to_owned()))
                }
            })
            .collect::<Option<Vec<Step>>>()
            .ok_or(NotAPath::Other)?;
        Ok(Path {
            root: root.to_owned(),
            steps,
        })
    }
}

/// Keywords may be parameters (`r#type`), and nobody should have to write `<r#type>`.
fn is_root(text: &str) -> bool {
    let name = Ident::parse_any.parse_str(text);
    text != "_" && name.is_ok_and(|name| name == text)
}

fn is_name(text: &str) -> bool {
    syn::parse_str::<Ident>(text).is_ok_and(|name| name == text)
}

fn identifier(name: &str, span: Span) -> Ident {
    match name.strip_prefix("r#") {
        Some(plain) => Ident::new_raw(plain, span),
        None => Ident::new(name, span),
    }
}

fn unraw(name: &Ident) -> String {
    name.unraw().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(names: &[&str], has_self: bool) -> Scope {
        let span = Span::call_site();
        Scope {
            function: Ident::new("reserve", span),
            names: names.iter().map(|name| identifier(name, span)).collect(),
            receiver: has_self.then(|| Token![self](span)),
            patterns_are_hidden: false,
        }
    }

    fn parse(key: &str, scope: &Scope) -> Result<Vec<(String, String)>, Vec<String>> {
        let mut mistakes = Mistakes::default();
        let key = LitStr::new(key, Span::call_site());
        let template = Template::parse(&key, scope, &mut mistakes);
        let parts = template.parts.into_iter().map(|part| match part {
            Part::Literal(text) => (text, String::new()),
            Part::Value { placeholder, expr } => (placeholder, expr.to_string().replace(' ', "")),
        });
        match mistakes.finish() {
            Ok(()) => Ok(parts.collect()),
            Err(errors) => Err(errors.into_iter().map(|error| error.to_string()).collect()),
        }
    }

    fn parts(key: &str) -> Vec<(String, String)> {
        parse(key, &scope(&["item_id", "order", "r#type", "N"], true)).expect("no mistakes")
    }

    fn literal(text: &str) -> (String, String) {
        (text.to_owned(), String::new())
    }

    fn value(placeholder: &str, expr: &str) -> (String, String) {
        (placeholder.to_owned(), expr.to_owned())
    }

    #[test]
    fn literals_and_values_alternate() {
        assert_eq!(parts("nightly"), [literal("nightly")]);
        assert_eq!(
            parts("inventory:<item_id>:<N>"),
            [
                literal("inventory:"),
                value("item_id", "&item_id"),
                literal(":"),
                value("N", "&N"),
            ]
        );
        assert_eq!(
            parts("{tenant:<self.tenant()>}:<order.0.id>"),
            [
                literal("{tenant:"),
                value("self.tenant()", "&self.tenant()"),
                literal("}:"),
                value("order.0.id", "&order.0.id"),
            ]
        );
    }

    #[test]
    fn keyword_parameters_go_by_either_name() {
        assert_eq!(parts("<type>"), [value("type", "&r#type")]);
        assert_eq!(parts("<r#type>"), [value("r#type", "&r#type")]);
    }

    #[test]
    fn doubled_angle_brackets_are_literal() {
        assert_eq!(parts("a<<b>>c"), [literal("a<b>c")]);
        assert_eq!(
            parts("<<<item_id>>>"),
            [literal("<"), value("item_id", "&item_id"), literal(">")]
        );
    }

    #[test]
    fn capacity_counts_literals_and_guesses_values() {
        let key = LitStr::new("inventory:<item_id>", Span::call_site());
        let template = Template::parse(&key, &scope(&["item_id"], false), &mut Mistakes::default());
        assert_eq!(template.capacity, "inventory:".len() + TYPICAL_VALUE);
    }

    #[test]
    fn each_mistake_has_its_own_message() {
        let scope = scope(&["item_id", "order"], false);
        let long = "x".repeat(513);
        let cases = [
            ("", "the key is empty"),
            (long.as_str(), "at least 513 bytes"),
            ("a\nb", "control character '\\n'"),
            ("a:<item_id", "never closed"),
            ("a:<item_id<order>", "never closed"),
            ("a:item_id>", "closes no placeholder"),
            ("a:<>", "`<>` names no parameter: write `<item_id>`"),
            ("a:<0>", "not by position"),
            ("a:<item_id:04>", "write `<item_id>`"),
            ("a:<item_id + 1>", "is not a placeholder"),
            ("a:<order.id(1)>", "is not a placeholder"),
            ("a:<order.await>", "is not a placeholder"),
            ("a:<_>", "is not a placeholder"),
            ("a:<Order::id>", "is not a placeholder"),
            ("a:<itm_id>", "did you mean `<item_id>`?"),
            ("a:<ordr.id>", "did you mean `<order.id>`?"),
            (
                "a:<warehouse>",
                "it has `item_id` and `order`: write `<item_id>`",
            ),
            ("a:<self.id>", "`reserve` has no `self`"),
            (
                "a:{item_id}",
                "write `<item_id>` to insert the value, or `{<item_id>}`",
            ),
            ("a:{order.id}", "write `<order.id>`"),
            ("a:{self.id}", "write `<self.id>`"),
            ("a:{}", "empty hash tag"),
            ("a:{b", "never closed"),
            ("a:b}", "`}` has no partner"),
            ("a:{{b}}", "`{` has no partner"),
            ("{a}:{b}", "2 pairs of braces"),
        ];
        for (key, expected) in cases {
            let found = parse(key, &scope).expect_err(key);
            assert_eq!(found.len(), 1, "{key}: {found:?}");
            assert!(found[0].contains(expected), "{key}: {found:?}");
        }
    }

    #[test]
    fn each_wrong_brace_and_placeholder_is_named() {
        let scope = scope(&["item_id", "order"], false);
        assert_eq!(parse("{item_id}:{order}", &scope).unwrap_err().len(), 2);
        assert_eq!(parse("<itm>:<odr>", &scope).unwrap_err().len(), 2);
    }

    #[test]
    fn a_function_without_parameters_is_told_so() {
        let found = parse("<item_id>", &scope(&[], false)).unwrap_err();
        assert!(found[0].contains("it has none"), "{found:?}");
    }

    #[test]
    fn hidden_patterns_are_explained() {
        let scope = Scope {
            patterns_are_hidden: true,
            ..scope(&["item_id"], true)
        };
        let found = parse("<order>", &scope).unwrap_err();
        assert!(found[0].contains("`#[async_trait]`"), "{found:?}");
    }
}
