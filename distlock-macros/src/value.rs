//! Values of arguments.

use syn::{Expr, ExprLit, Lit, LitStr};

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
