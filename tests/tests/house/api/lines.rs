//! The lines of `api.txt`, and how code looks in them.

use std::fmt;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Expr, ExprLit, Lit, Meta};

/// One thing that users can name. Lines are ordered by what they belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    /// The type, trait or function that this is, or is a part of.
    pub(crate) of: String,
    pub(crate) rank: Rank,
    pub(crate) text: String,
    /// In front of the text.
    pub(crate) attributes: String,
    /// What is said of it, which is no part of the line.
    pub(crate) docs: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Definition,
    Part,
    Function,
    Impl,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.attributes, self.text)
    }
}

/// The attributes that callers notice. Why something must be used is documentation.
pub(crate) fn noticed(attributes: &[Attribute]) -> String {
    let mut noticed: Vec<String> = attributes
        .iter()
        .filter_map(|attribute| {
            let path = attribute.path();
            if path.is_ident("must_use") || path.is_ident("deprecated") {
                Some(format!("#[{}] ", tidy(path)))
            } else if path.is_ident("non_exhaustive")
                || path.is_ident("cfg")
                || path.is_ident("repr")
            {
                Some(format!("{} ", tidy(attribute)))
            } else {
                None
            }
        })
        .collect();
    noticed.sort();
    noticed.concat()
}

/// The documentation, as it is written.
pub(crate) fn documentation(attributes: &[Attribute]) -> String {
    let mut docs = String::new();
    for attribute in attributes {
        if let Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("doc")
            && let Expr::Lit(ExprLit {
                lit: Lit::Str(text),
                ..
            }) = &pair.value
        {
            docs.push_str(&text.value());
            docs.push('\n');
        }
    }
    docs
}

/// Whether something is public, but not meant for users.
pub(crate) fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("doc")
            && attribute
                .meta
                .require_list()
                .is_ok_and(|list| list.tokens.to_string() == "hidden")
    })
}

/// Code on one line, with the spaces that people write.
pub(crate) fn tidy(code: &impl ToTokens) -> String {
    let mut text = String::new();
    write(code.to_token_stream(), &mut text);
    text
}

/// Signs of more than one character.
const JOINED: &[&str] = &["::", "->", "=>", "..=", "..", "&&", "=="];

fn write(tokens: TokenStream, text: &mut String) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) => {
                group_to(group.delimiter(), group.stream(), text);
                at += 1;
            }
            TokenTree::Punct(_) => {
                let sign = sign(&tokens[at..]);
                at += sign.len();
                // A comma before an end is the formatter's.
                let is_last = at == tokens.len()
                    || matches!(&tokens[at], TokenTree::Punct(next) if next.as_char() == '>');
                if !(sign == "," && is_last) {
                    push(text, &sign);
                }
            }
            token => {
                push(text, &token.to_string());
                at += 1;
            }
        }
    }
}

fn group_to(delimiter: Delimiter, inner: TokenStream, text: &mut String) {
    let (open, close) = match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::None => ("", ""),
    };
    if inner.is_empty() {
        push(text, &format!("{open}{close}"));
        return;
    }
    push(text, open);
    write(inner, text);
    push(text, close);
}

fn sign(tokens: &[TokenTree]) -> String {
    let mut signs = String::new();
    for token in tokens {
        let TokenTree::Punct(punct) = token else {
            break;
        };
        signs.push(punct.as_char());
        if punct.spacing() == Spacing::Alone {
            break;
        }
    }
    let joined = JOINED.iter().find(|joined| signs.starts_with(**joined));
    joined.map_or_else(|| signs[..1].to_owned(), |joined| (*joined).to_owned())
}

/// Appends a token, with a space in front where one belongs.
fn push(text: &mut String, token: &str) {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '"');
    let last = text.chars().last();
    let after_word = is_word(last);
    let spaced = match token.chars().next() {
        None => false,
        Some('(' | '[') => {
            matches!(last, Some(',' | ':' | '+' | '=')) && !text.ends_with("::")
                || text.ends_with("->")
        }
        Some('{' | '}') => !text.ends_with(['{', '<']),
        Some(')' | ']' | ',' | ';' | '.' | '?' | '!') => {
            text.ends_with([':', '+', ',']) && !text.ends_with("::")
        }
        Some(':') => false,
        Some('<') => text.ends_with([',', '+', '=', ':']) && !text.ends_with("::"),
        Some('>') => false,
        Some('-' | '=' | '+' | '|') => true,
        Some('&' | '\'' | '#' | '*') => {
            after_word
                || text.ends_with([',', ':', '+', '=', '}']) && !text.ends_with("::")
                || text.ends_with("->")
        }
        Some(_) => {
            after_word
                || text.ends_with([',', '+', '=', ')', ']', '{', '}', ';'])
                || text.ends_with("->")
                || (text.ends_with(':') && !text.ends_with("::"))
                || (text.ends_with('>') && token != ".")
        }
    };
    if spaced && !text.is_empty() && !text.ends_with(' ') {
        text.push(' ');
    }
    text.push_str(token);
}
