//! The arguments that limit successful runs: `once_per`, `once_for` and `record_ttl`.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned as _;
use syn::{Expr, LitStr, Path};

use crate::args::Given;
use crate::duration::Time;
use crate::errors::Errors;
use crate::limits::MAX_ONCE_VALUE;
use crate::names::Argument;
use crate::value::string_literal;

#[derive(Default)]
pub(crate) struct OnceArguments {
    pub(crate) per: Option<Time>,
    pub(crate) value: Option<Expr>,
    pub(crate) record_ttl: Option<Time>,
}

impl OnceArguments {
    /// Reports arguments that contradict each other.
    pub(crate) fn check(given: &Given, errors: &mut Errors) {
        let (per, value) = (
            given.place(Argument::OncePer),
            given.place(Argument::OnceFor),
        );
        if per.is_some()
            && let Some(at) = value
        {
            errors.push_at(
                at,
                "`once_per` and `once_for` are both given: keep `once_per` for one success in each period, or \
                 `once_for` for one success of each value",
            );
        }
        if value.is_none()
            && let Some(at) = given.place(Argument::RecordTtl)
        {
            errors.push_at(
                at,
                format!(
                    "`record_ttl` is how long `once_for` remembers a success, and there is no `once_for`: write \
                     `{}`, or leave `record_ttl` out",
                    Argument::OnceFor.example()
                ),
            );
        }
        let once = per.map(|at| (Argument::OncePer, at));
        let Some((once, at)) = once.or(value.map(|at| (Argument::OnceFor, at))) else {
            return;
        };
        let shared = |other: Argument| {
            format!(
                "because such calls can succeed at the same time: leave `{other}` out, and call a function with `{other}` from the body"
            )
        };
        for (other, remedy) in [
            (
                Argument::Keys,
                "each of which would need a record: write a single `key`, and call a function with `keys` from its body"
                    .to_owned(),
            ),
            (Argument::Permits, shared(Argument::Permits)),
            (Argument::Mode, shared(Argument::Mode)),
            (
                Argument::MinHold,
                "because its record already keeps the job from running twice: leave `min_hold` out".to_owned(),
            ),
            (
                Argument::LockIf,
                "because a run without the lock is neither checked nor recorded: write `run_if`, which skips the call"
                    .to_owned(),
            ),
        ] {
            if given.contains(other) {
                errors.push_at(
                    at,
                    format!("`{once}` cannot be used with `{other}`, {remedy}"),
                );
            }
        }
    }

    /// Reports a literal of `once_for` that has the name of a parameter.
    pub(crate) fn check_literal(&self, parameters: &[String], errors: &mut Errors) {
        let Some(text) = self.value.as_ref().and_then(string_literal) else {
            return;
        };
        let value = text.value();
        let first = value.split('.').next().unwrap_or_default();
        if parameters.iter().any(|parameter| parameter == first) {
            errors.push_at(text.span(), as_expression(&value));
        }
    }

    /// Returns true if the call needs to know whether its body succeeded.
    pub(crate) fn is_given(&self) -> bool {
        self.per.is_some() || self.value.is_some()
    }

    /// Returns the expressions that are evaluated before the body.
    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let times = self.per.iter().chain(&self.record_ttl);
        times.filter_map(Time::expr).chain(&self.value)
    }

    // Output, for `once_for = event.id`:
    //     .once_for(::distlock::__private::OnceForValue::display(&(event.id)))
    //
    // `is_generic` omits `OnceForValue`, as in a key.
    pub(crate) fn value_call(&self, krate: &Path, is_generic: bool) -> Option<TokenStream> {
        let value = self.value.as_ref()?;
        let site = Span::mixed_site();
        let mut display = quote_spanned!(value.span()=> &(#value));
        if !is_generic {
            let place = site.located_at(value.span());
            display = quote_spanned!(place=> #krate::__private::OnceForValue::display(#display));
        }
        Some(quote_spanned!(site=> .once_for(#display)))
    }
}

/// Reads the value of a run. Only a literal can be checked here.
pub(super) fn read_value(value: Expr) -> syn::Result<Expr> {
    let Some(text) = string_literal(&value).map(LitStr::value) else {
        return Ok(value);
    };
    let message = if text.is_empty() {
        format!(
            "`once_for` is empty: write what the run is for, such as `{}`",
            Argument::OnceFor.example()
        )
    } else if text.len() > MAX_ONCE_VALUE {
        format!(
            "`once_for` has {} bytes: write at most {MAX_ONCE_VALUE}",
            text.len()
        )
    } else if text.contains(['<', '{']) {
        as_expression(text.trim_matches(['<', '>', '{', '}']))
    } else {
        return Ok(value);
    };
    Err(syn::Error::new_spanned(value, message))
}

fn as_expression(text: &str) -> String {
    let is_path = text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text
            .chars()
            .all(|c| c.is_alphanumeric() || "_.()".contains(c));
    let meant = if is_path {
        format!("once_for = {text}")
    } else {
        Argument::OnceFor.example().to_owned()
    };
    format!(
        "this text would be the same for every call, because `once_for` is an expression and no template: write it \
         without quotes, `{meant}`"
    )
}
