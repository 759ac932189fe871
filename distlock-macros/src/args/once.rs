//! The arguments that limit successful runs: `once_per`, `once_for` and `record_ttl`.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned as _;
use syn::{Expr, LitStr, Path};

use crate::duration::Time;
use crate::errors::Errors;
use crate::names::example;
use crate::value::string_literal;

/// Largest length of a value of `once_for`, in bytes, as in the `distlock` crate.
const MAX_VALUE: usize = 128;

#[derive(Default)]
pub(crate) struct Once {
    pub(crate) per: Option<Time>,
    value: Option<Expr>,
    pub(crate) record_ttl: Option<Time>,
    /// The names of the given arguments, including those with an error.
    given: Vec<(String, Span)>,
}

impl Once {
    /// Reads one of the three arguments.
    pub(crate) fn read(&mut self, argument: &str, value: Expr) -> syn::Result<()> {
        self.given.push((argument.to_owned(), value.span()));
        match argument {
            "once_per" => self.per = Some(Time::read(argument, value)?),
            "once_for" => self.value = Some(read_value(value)?),
            _ => self.record_ttl = Some(Time::read(argument, value)?),
        }
        Ok(())
    }

    /// Reports arguments that contradict each other. `arguments` are the names of all arguments.
    pub(crate) fn check(&self, arguments: &[String], errors: &mut Errors) {
        let place = |name: &str| {
            let mut given = self.given.iter();
            given.find(|(given, _)| given == name).map(|(_, at)| *at)
        };
        let (per, value) = (place("once_per"), place("once_for"));
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
            && let Some(at) = place("record_ttl")
        {
            errors.push_at(
                at,
                format!(
                    "`record_ttl` is how long `once_for` remembers a success, and there is no `once_for`: write \
                     `{}`, or leave `record_ttl` out",
                    example("once_for")
                ),
            );
        }
        let once = per.map(|at| ("once_per", at));
        let Some((once, at)) = once.or(value.map(|at| ("once_for", at))) else {
            return;
        };
        let shared = |other| {
            format!(
                "because such calls can succeed at the same time: leave `{other}` out, and call a function with `{other}` from the body"
            )
        };
        for (other, remedy) in [
            (
                "keys",
                "each of which would need a record: write a single `key`, and call a function with `keys` from its body"
                    .to_owned(),
            ),
            ("permits", shared("permits")),
            ("mode", shared("mode")),
            (
                "min_hold",
                "because its record already keeps the job from running twice: leave `min_hold` out".to_owned(),
            ),
            (
                "lock_if",
                "because a run without the lock is neither checked nor recorded: write `run_if`, which skips the call"
                    .to_owned(),
            ),
        ] {
            if arguments.iter().any(|argument| argument == other) {
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
fn read_value(value: Expr) -> syn::Result<Expr> {
    let Some(text) = string_literal(&value).map(LitStr::value) else {
        return Ok(value);
    };
    let message = if text.is_empty() {
        format!(
            "`once_for` is empty: write what the run is for, such as `{}`",
            example("once_for")
        )
    } else if text.len() > MAX_VALUE {
        format!(
            "`once_for` has {} bytes: write at most {MAX_VALUE}",
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
        example("once_for").to_owned()
    };
    format!(
        "this text would be the same for every call, because `once_for` is an expression and no template: write it \
         without quotes, `{meant}`"
    )
}
