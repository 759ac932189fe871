//! Values of arguments, as far as they do not depend on the argument.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Expr, ExprLit, ExprUnary, Lit, LitInt, LitStr, UnOp};

use crate::names::Argument;

/// Removes the invisible groups that `macro_rules!` puts around fragments.
pub(crate) fn without_groups(mut value: &Expr) -> &Expr {
    loop {
        value = match value {
            Expr::Group(group) => &group.expr,
            Expr::Paren(paren) => &paren.expr,
            other => return other,
        };
    }
}

pub(crate) fn string_literal(value: &Expr) -> Option<&LitStr> {
    match without_groups(value) {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Some(text),
        _ => None,
    }
}

pub(crate) fn int_literal(value: &Expr) -> Option<&LitInt> {
    match without_groups(value) {
        Expr::Lit(ExprLit {
            lit: Lit::Int(number),
            ..
        }) => Some(number),
        _ => None,
    }
}

/// Returns the mistake in the value of a number that is negative or in quotes.
pub(crate) fn number_mistake(argument: Argument, value: &Expr) -> Option<String> {
    if let Expr::Unary(ExprUnary {
        op: UnOp::Neg(_), ..
    }) = without_groups(value)
    {
        let example = argument.example();
        return Some(format!(
            "`{argument}` cannot be negative: write `{example}`"
        ));
    }
    let text = string_literal(value)?.value();
    text.parse::<u32>().ok()?;
    Some(format!(
        "`{argument}` is a number: write it without quotes, `{argument} = {text}`"
    ))
}

/// Returns true for a word without its quotes.
pub(crate) fn is_word(value: &Expr, word: &str) -> bool {
    match without_groups(value) {
        Expr::Path(path) => path
            .path
            .get_ident()
            .is_some_and(|name| name.to_string().eq_ignore_ascii_case(word)),
        _ => false,
    }
}

/// Returns the error for a value that is none of these words. `message` says what they mean.
pub(crate) fn expected_words(
    argument: Argument,
    value: &Expr,
    words: &[&str],
    message: &str,
) -> syn::Error {
    match words.iter().find(|word| is_word(value, word)) {
        Some(word) => {
            let message =
                format!("`{argument}` takes a text in quotes: write `{argument} = \"{word}\"`");
            syn::Error::new_spanned(value, message)
        }
        None => syn::Error::new_spanned(value, message),
    }
}

/// Reads a value that rustc checks. Any expression but a string literal.
pub(crate) fn expression(argument: Argument, value: Expr) -> syn::Result<Expr> {
    match string_literal(&value) {
        Some(text) => Err(syn::Error::new(
            text.span(),
            format!(
                "`{argument}` is an expression, not its text: write it without quotes, such as \
                 `{}`",
                argument.example()
            ),
        )),
        None => Ok(value),
    }
}

/// Reads a function from the lock's error to the result of the annotated function.
pub(crate) fn function(argument: Argument, value: Expr) -> syn::Result<Expr> {
    let is_plain_value = match without_groups(&value) {
        Expr::Lit(_) => string_literal(&value).is_none(),
        Expr::Path(path) => path.path.is_ident("None"),
        Expr::Tuple(_) | Expr::Array(_) | Expr::Struct(_) => true,
        _ => false,
    };
    if !is_plain_value {
        return expression(argument, value);
    }
    Err(syn::Error::new_spanned(
        &value,
        format!(
            "`{argument}` is a function from the error to the result: write `{argument} = |_| {}`",
            value.to_token_stream()
        ),
    ))
}

/// Returns the expression as a value of type `ty`. An error about its type is at the expression.
//
// Output, for `weight = pages`:
//     { let __value: ::core::primitive::u32 = pages; __value }
pub(crate) fn typed(expr: &Expr, ty: &TokenStream) -> TokenStream {
    let place = Span::mixed_site().located_at(expr.span());
    let ty = ty.clone().into_iter().map(|mut token| {
        token.set_span(place);
        token
    });
    let ty: TokenStream = ty.collect();
    quote_spanned!(place=> { let __value: #ty = #expr; __value })
}
