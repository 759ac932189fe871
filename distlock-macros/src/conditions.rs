//! The arguments that decide whether a call takes its lock, and what a skipped call returns:
//! `on_busy`, `run_if` and `lock_if`.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::{Expr, Path};

use crate::errors::Errors;
use crate::names::Argument;
use crate::value::{self, string_literal};

/// The result of a skipped call.
pub(crate) enum OnBusy {
    /// `"skip"`: the empty value of the return type.
    Skip,
    /// A path or a closure from the error to the result.
    Function(Expr),
}

#[derive(Default)]
pub(crate) struct RunConditions {
    pub(crate) on_busy: Option<OnBusy>,
    pub(crate) run_if: Option<Expr>,
    pub(crate) lock_if: Option<Expr>,
}

impl RunConditions {
    /// Reports a missing argument.
    pub(crate) fn check(&self, errors: &mut Errors) {
        if let (Some(run_if), None) = (&self.run_if, &self.on_busy) {
            errors.push_spanned(
                run_if,
                "`run_if` needs `on_busy`, which says what a skipped call returns: add `on_busy = \"skip\"`, or \
                 `on_busy = |error| ...`",
            );
        }
    }

    pub(crate) fn conditions(&self) -> impl Iterator<Item = &Expr> {
        self.run_if.iter().chain(&self.lock_if)
    }

    // Input: REQUEST
    //
    // Output:
    //     Ok(REQUEST)
    //
    // Input: REQUEST, SKIP, run_if = enabled, lock_if = shared
    //
    // Output:
    //     if { let __value: bool = enabled; __value } {
    //         if { let __value: bool = shared; __value } {
    //             Ok(REQUEST)
    //         } else {
    //             Err(::distlock::__private::Bypass::RunUnlocked)
    //         }
    //     } else {
    //         Err(::distlock::__private::Bypass::Skip SKIP)
    //     }
    /// Returns code that decides on a call. `skip` describes a skipped call.
    pub(crate) fn decide(
        &self,
        krate: &Path,
        request: &TokenStream,
        skip: &TokenStream,
    ) -> TokenStream {
        let site = Span::mixed_site();
        let bypass = quote_spanned!(site=> #krate::__private::Bypass);
        let run_unlocked = quote_spanned!(site=> #bypass::RunUnlocked);
        let skip = quote_spanned!(site=> #bypass::Skip #skip);
        let mut decision = quote_spanned!(site=> ::core::result::Result::Ok(#request));
        for (condition, bypass) in [(&self.lock_if, run_unlocked), (&self.run_if, skip)] {
            if let Some(condition) = condition {
                let condition =
                    value::typed(condition, &quote_spanned!(site=> ::core::primitive::bool));
                decision = quote_spanned! {site=>
                    if #condition { #decision } else { ::core::result::Result::Err(#bypass) }
                };
            }
        }
        decision
    }
}

impl OnBusy {
    pub(crate) fn function(&self) -> Option<&Expr> {
        match self {
            OnBusy::Skip => None,
            OnBusy::Function(function) => Some(function),
        }
    }

    pub(crate) fn read(argument: Argument, value: Expr) -> syn::Result<OnBusy> {
        match string_literal(&value).map(|text| text.value()) {
            Some(text) if text == "skip" => Ok(OnBusy::Skip),
            None if !value::is_word(&value, "skip") => {
                value::function(argument, value).map(OnBusy::Function)
            }
            _ => Err(value::expected_words(
                argument,
                &value,
                &["skip"],
                "`on_busy` is \"skip\" (a busy call returns `()`, `None` or `Ok` of these), or a function from the \
                 error to the result, such as `on_busy = |error| ...`",
            )),
        }
    }
}
