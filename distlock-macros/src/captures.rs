//! Finds parameters in expressions. The closures of `on_error` and `on_busy` cannot have any,
//! because the body owns them.

use proc_macro2::{Ident, Spacing, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::{Expr, ExprClosure};

use crate::function::bound_names;
use crate::value::without_groups;

/// Returns the first of `parameters` that a closure mentions. A name that the closure itself may
/// define is left to the compiler.
pub(crate) fn find_capture(closure: &ExprClosure, parameters: &[String]) -> Option<Ident> {
    let mut own = Vec::new();
    for input in &closure.inputs {
        bound_names(input, &mut own);
    }
    let own: Vec<String> = own.iter().map(|name| name.unraw().to_string()).collect();
    let foreign: Vec<&str> = parameters
        .iter()
        .map(String::as_str)
        .filter(|name| !own.iter().any(|own| own == name))
        .collect();
    let body = closure.body.to_token_stream();
    if binds_names(&body) {
        return None;
    }
    find_mention(body, &foreign)
}

/// Returns the closure of an expression, without the groups around it.
pub(crate) fn closure(value: &Expr) -> Option<&ExprClosure> {
    match without_groups(value) {
        Expr::Closure(closure) => Some(closure),
        _ => None,
    }
}

/// Returns true if an expression may mention a variable, also as `"{name}"`.
pub(crate) fn mentions(expr: TokenStream, name: &Ident) -> bool {
    let name = name.unraw().to_string();
    find_mention(expr.clone(), &[&name]).is_some() || formats(expr, &format!("{{{name}"))
}

/// Returns true if a literal contains this text.
fn formats(expr: TokenStream, text: &str) -> bool {
    expr.into_iter().any(|token| match token {
        TokenTree::Group(group) => formats(group.stream(), text),
        TokenTree::Literal(literal) => literal.to_string().contains(text),
        _ => false,
    })
}

fn binds_names(body: &TokenStream) -> bool {
    body.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => binds_names(&group.stream()),
        TokenTree::Ident(word) => ["let", "match", "for", "fn", "const", "static"]
            .iter()
            .any(|binding| word == binding),
        TokenTree::Punct(bar) => bar.as_char() == '|',
        TokenTree::Literal(_) => false,
    })
}

fn find_mention(body: TokenStream, names: &[&str]) -> Option<Ident> {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    let is = |at: Option<usize>, c: char| {
        at.and_then(|at| tokens.get(at))
            .is_some_and(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == c))
    };
    tokens
        .iter()
        .enumerate()
        .find_map(|(at, token)| match token {
            TokenTree::Group(group) => find_mention(group.stream(), names),
            TokenTree::Ident(name) if names.contains(&&*name.unraw().to_string()) => {
                // Not a variable: a field, a step of a path, a lifetime, a field's name, the start
                // of a path, or a macro.
                let before = at.checked_sub(1);
                let is_part = is(before, '.') && !is(at.checked_sub(2), '.');
                let is_part = is_part || is(before, ':') || is(before, '\'');
                let is_macro = is(Some(at + 1), '!') && !is_joint(tokens.get(at + 1));
                (!is_part && !is(Some(at + 1), ':') && !is_macro).then(|| name.clone())
            }
            _ => None,
        })
}

/// Returns true for the `!` of `!=`.
fn is_joint(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Punct(p)) if p.spacing() == Spacing::Joint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    #[test]
    fn a_parameter_is_found_wherever_it_is_used() {
        let names = ["item_id", "self", "type"].map(str::to_owned);
        let find = |value: Expr| {
            let found = find_capture(closure(&value).expect("a closure"), &names);
            found.map(|name| name.to_string())
        };
        for (value, name) in [
            (parse_quote!(|_| item_id), "item_id"),
            (
                parse_quote!((move |error| Err(f(error, &[item_id])))),
                "item_id",
            ),
            (parse_quote!(|_| format!("{}", item_id)), "item_id"),
            (parse_quote!(|_| self.default), "self"),
            (
                parse_quote!(|_| if item_id != 0 { 1 } else { 2 }),
                "item_id",
            ),
            (parse_quote!(|_| Response { item_id }), "item_id"),
            (parse_quote!(|_| r#type), "r#type"),
        ] {
            assert_eq!(find(value).as_deref(), Some(name));
        }
        for value in [
            parse_quote!(|item_id| item_id),
            parse_quote!(|Failed { item_id, .. }| item_id),
            parse_quote!(|error| error.item_id),
            parse_quote!(|error| shop::item_id(error)),
            parse_quote!(|error| item_id::of(error)),
            parse_quote!(|_| Response { item_id: 7 }),
            parse_quote!(|_| item_id!()),
            parse_quote!(|_| self::failed()),
            parse_quote!(|_| {
                let item_id = 7;
                item_id
            }),
            parse_quote!(|error| match error {
                Busy(item_id) => item_id,
            }),
            parse_quote!(|_| [1].map(|item_id| item_id)),
        ] {
            assert_eq!(find(value), None);
        }
    }
}
