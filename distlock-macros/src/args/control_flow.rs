//! `return`, `?` and `.await` in an argument's expression. The expression is evaluated before the
//! lock is acquired, so they would end the call, or wait, without the lock.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::Expr;

use crate::names::Argument;

/// Reports the first of them. Those in a closure, an async block or a nested function are its own.
pub(crate) fn check(argument: Argument, value: &Expr) -> syn::Result<()> {
    let Some((word, place)) = find(value.to_token_stream()) else {
        return Ok(());
    };
    let consequence = match word {
        ".await" => "wait before the lock is acquired",
        _ => "end the call without the lock",
    };
    Err(syn::Error::new(
        place,
        format!(
            "`{word}` in `{argument}` would {consequence}: compute the value before the call, and pass it as a \
             parameter"
        ),
    ))
}

/// Reads tokens instead of expressions, because the tokens of a macro have no other form.
fn find(tokens: TokenStream) -> Option<(&'static str, Span)> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut in_closure = false;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let before = at.checked_sub(1).map(|before| &tokens[before]);
        match token {
            // The body of a closure is as long as possible.
            TokenTree::Punct(end) if matches!(end.as_char(), ',' | ';') => in_closure = false,
            _ if in_closure => {}
            TokenTree::Punct(bar) if bar.as_char() == '|' => {
                let closing = tokens[at + 1..].iter().position(|token| is(token, '|'));
                if before.is_none_or(|before| !ends_value(before)) {
                    in_closure = true;
                    at += closing.map_or(0, |distance| distance + 1);
                } else if closing == Some(0) {
                    // The operator `||`.
                    at += 1;
                }
            }
            // Not the `?` of `?Sized`, nor that of a field of `tracing`, such as `?error`.
            TokenTree::Punct(mark)
                if mark.as_char() == '?'
                    && before.is_some_and(|before| ends_value(before) || is(before, '>')) =>
            {
                return Some(("?", mark.span()));
            }
            TokenTree::Ident(word) if word == "return" => return Some(("return", word.span())),
            TokenTree::Ident(word)
                if word == "await" && before.is_some_and(|before| is(before, '.')) =>
            {
                return Some((".await", word.span()));
            }
            TokenTree::Ident(word) if word == "async" || word == "fn" => {
                at = own_block(&tokens, at, word == "fn").unwrap_or(at);
            }
            TokenTree::Group(group) => {
                if let Some(found) = find(group.stream()) {
                    return Some(found);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the position of the block of `async { .. }`, `async move { .. }` or `fn name(..) { ..
/// }`.
fn own_block(tokens: &[TokenTree], keyword: usize, is_fn: bool) -> Option<usize> {
    let block = (keyword + 1..tokens.len()).find(|&at| {
        matches!(&tokens[at], TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    })?;
    let between = &tokens[keyword + 1..block];
    let is_own = match between {
        [] => !is_fn,
        [TokenTree::Ident(word)] if word == "move" => !is_fn,
        [TokenTree::Ident(_), ..] => is_fn,
        _ => false,
    };
    is_own.then_some(block)
}

/// Returns true for the last token of a value. After any other token, `|` begins a closure.
fn ends_value(token: &TokenTree) -> bool {
    const KEYWORDS: [&str; 10] = [
        "async", "break", "else", "if", "in", "match", "move", "return", "static", "while",
    ];
    match token {
        TokenTree::Ident(word) => !KEYWORDS.iter().any(|keyword| word == keyword),
        TokenTree::Punct(sign) => sign.as_char() == '?',
        TokenTree::Group(_) | TokenTree::Literal(_) => true,
    }
}

fn is(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    #[test]
    fn what_leaves_the_function_is_found_and_what_leaves_a_closure_is_not() {
        for (expr, word) in [
            (quote!(return Ok(0)), "return"),
            (quote!(if a { true } else { return Err(b) }), "return"),
            (
                quote!(match a {
                    Some(b) | Ok(b) => b,
                    _ => return,
                }),
                "return",
            ),
            (quote!(a? + 1), "?"),
            (quote!(None::<bool>?), "?"),
            (quote!(f(a.b()?)), "?"),
            (quote!(format!("{}", a?)), "?"),
            (quote!(json!({ "a": [b.c?] })), "?"),
            (quote!(a | b? == 0), "?"),
            (quote!(a || b?), "?"),
            (quote!(a.map(|b| b + 1)?), "?"),
            (quote!(a.map(|b, c| b?, d?)), "?"),
            (
                quote!({
                    let f = || 1;
                    g(f)?
                }),
                "?",
            ),
            (
                quote!({
                    fn f() -> Option<u8> {
                        Some(g()?)
                    }
                    f()?
                }),
                "?",
            ),
            (quote!(f(async { 1 }).await), ".await"),
            (quote!(unsafe { f().await }), ".await"),
            (quote!(a as fn(u8) -> bool == f.await), ".await"),
        ] {
            assert_eq!(
                find(expr.clone()).map(|(word, _)| word),
                Some(word),
                "{expr}"
            );
        }
        for expr in [
            quote!(|error| Err(f(error)?)),
            quote!(move |error, b| { return Some(error?) }),
            quote!(a.and_then(|b| b.c?.d)),
            quote!(a.and_then(|(b, c)| Some(b? | c?))),
            quote!(|| a?),
            quote!(f(async { a.await? })),
            quote!(f(async move { return a })),
            quote!(f(async move |a| a.await)),
            quote!({
                fn f() -> Option<u8> {
                    g()?;
                    return None;
                }
                f().is_some()
            }),
            quote!(f::<dyn A + ?Sized>()),
            quote!(info_span!("a", ?b, c = ?d)),
            quote!(a.r#return || a.r#await),
            quote!("return a?.await"),
        ] {
            assert!(find(expr.clone()).is_none(), "{expr}");
        }
    }
}
