//! The arguments that choose the kind of the lock: `permits`, `weight` and `mode`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens as _, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Expr, LitInt};

use crate::captures;
use crate::errors::Errors;
use crate::limits::MAX_PERMITS;
use crate::names::Argument;
use crate::value::{self, string_literal, without_groups};

/// The kind of the lock. Without arguments it is a mutex.
#[derive(Default)]
pub(crate) struct KindArguments {
    pub(crate) permits: Option<Count>,
    pub(crate) weight: Option<Count>,
    pub(crate) mode: Option<Mode>,
}

/// A number, and its value if it is a literal.
pub(crate) struct Count {
    expr: Expr,
    value: Option<u32>,
}

pub(crate) struct Mode {
    is_write: bool,
    place: Span,
}

impl KindArguments {
    /// Reports arguments that contradict each other. `several_keys` is true with `keys`.
    pub(crate) fn check(&self, several_keys: bool, errors: &mut Errors) {
        let several = "cannot be used with `keys`, each of which one call holds at a time: write a single `key`, and \
                       call a function with `keys` from its body";
        match (&self.permits, &self.weight) {
            (Some(permits), _) if several_keys => {
                errors.push_spanned(&permits.expr, format!("`permits` {several}"));
            }
            (None, Some(weight)) => errors.push_spanned(
                &weight.expr,
                "`weight` is a number of permits, and there are none: write `permits = 3, weight = 2`",
            ),
            (Some(permits), Some(weight)) => {
                if let (Some(permits), Some(value)) = (permits.value, weight.value)
                    && value > permits
                {
                    errors.push_spanned(
                        &weight.expr,
                        format!(
                            "`weight` is greater than `permits`, so the call could never be served: write at most \
                             `weight = {permits}`, or raise `permits`"
                        ),
                    );
                }
            }
            (_, None) => {}
        }
        let Some(mode) = &self.mode else { return };
        if several_keys {
            errors.push_at(mode.place, format!("`mode` {several}"));
        }
        if self.permits.is_some() {
            errors.push_at(
                mode.place,
                "`mode` and `permits` are two kinds of lock: keep `mode` for readers and writers, or `permits` for a \
                 limit",
            );
        }
    }

    /// Returns true if an expression needs this parameter.
    pub(crate) fn mentions(&self, parameter: &Ident) -> bool {
        let counts = self.permits.iter().chain(&self.weight);
        let mut exprs = counts.map(|count| count.expr.to_token_stream());
        exprs.any(|expr| captures::mentions(expr, parameter))
    }

    /// Returns the name in `distlock::HoldKind`.
    pub(crate) fn hold_kind(&self) -> Ident {
        let name = match (&self.permits, &self.mode) {
            (Some(_), _) => "Semaphore",
            (None, Some(Mode { is_write: true, .. })) => "Write",
            (None, Some(_)) => "Read",
            (None, None) => "Mutex",
        };
        Ident::new(name, Span::mixed_site())
    }

    // Output, for `permits = 3, weight = pages`:
    //     .permits({ let __value: u32 = 3; __value }, { let __value: u32 = pages; __value })
    pub(crate) fn call(&self) -> TokenStream {
        let site = Span::mixed_site();
        let u32 = quote_spanned!(site=> ::core::primitive::u32);
        let typed = |count: &Count| value::typed(&count.expr, &u32);
        match (&self.permits, &self.mode) {
            (Some(permits), _) => {
                let permits = typed(permits);
                let weight = self.weight.as_ref().map_or(quote_spanned!(site=> 1), typed);
                quote_spanned!(site=> .permits(#permits, #weight))
            }
            (None, Some(Mode { is_write: true, .. })) => quote_spanned!(site=> .write()),
            (None, Some(_)) => quote_spanned!(site=> .read()),
            (None, None) => TokenStream::new(),
        }
    }
}

impl Count {
    /// Reads a number of permits. Only a literal can be checked here.
    pub(crate) fn read(argument: Argument, expr: Expr) -> syn::Result<Count> {
        let number = value::int_literal(&expr).map(LitInt::base10_parse::<u32>);
        let example = argument.example();
        let message = match number {
            Some(Ok(n @ 1..=MAX_PERMITS)) => {
                let value = Some(n);
                return Ok(Count { expr, value });
            }
            Some(_) => format!(
                "`{argument}` is out of range: write a number from 1 to {MAX_PERMITS}, such as `{example}`"
            ),
            None => match value::number_mistake(argument, &expr) {
                Some(mistake) => mistake,
                None if matches!(without_groups(&expr), Expr::Lit(_)) => {
                    format!("`{argument}` is a number of permits: write `{example}`")
                }
                None => return Ok(Count { expr, value: None }),
            },
        };
        Err(syn::Error::new_spanned(expr, message))
    }
}

impl Mode {
    pub(crate) fn read(argument: Argument, value: &Expr) -> syn::Result<Mode> {
        let mode = |is_write| {
            let place = value.span();
            Ok(Mode { is_write, place })
        };
        match string_literal(value).map(|text| text.value()).as_deref() {
            Some("read") => mode(false),
            Some("write") => mode(true),
            _ => Err(value::expected_words(
                argument,
                value,
                &["read", "write"],
                "`mode` is \"read\" (next to other reads of the key) or \"write\" (alone)",
            )),
        }
    }
}
