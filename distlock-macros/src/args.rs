//! The attribute's arguments: `key = "...", lease = "15s", ...`.
//!
//! The list of `name = value` is read first, then the meaning of each value, so that one error
//! does not hide the next.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned as _;
use syn::{Expr, ExprPath, Lit, LitInt, LitStr, Path, Token, parse_quote};

use crate::args::once::OnceArguments;
use crate::captures;
use crate::conditions::{OnBusy, RunConditions};
use crate::duration::Time;
use crate::errors::Errors;
use crate::kind::{Count, KindArguments, Mode};
use crate::limits::{self, MAX_KEYS, MAX_METADATA, is_hidden};
use crate::names::{Argument, argument_list};
use crate::value::{self, string_literal, without_groups};

mod control_flow;
mod once;

/// The arguments. A missing argument is `None`, so the default of the `distlock` crate applies.
pub(crate) struct Args {
    /// The templates of `key` or `keys`; none if they could not be read.
    pub(crate) keys: Vec<LitStr>,
    /// True if the templates come from the argument `keys`, not from `key`.
    pub(crate) several_keys: bool,
    pub(crate) lease: Option<Time>,
    pub(crate) wait: Option<Time>,
    pub(crate) max_hold: Option<Time>,
    pub(crate) min_hold: Option<Time>,
    pub(crate) once: OnceArguments,
    pub(crate) conditions: RunConditions,
    pub(crate) min_replicas: Option<u32>,
    pub(crate) kind: KindArguments,
    pub(crate) manager: Option<Expr>,
    pub(crate) finish_on_loss: bool,
    pub(crate) on_error: Option<Expr>,
    pub(crate) label: Option<LitStr>,
    pub(crate) metadata: Option<Expr>,
    /// The name of the function that returns the key.
    pub(crate) key_fn: Option<Ident>,
    pub(crate) krate: Path,
}

impl Args {
    /// Reads all arguments. Reports missing arguments at `attribute`.
    pub(crate) fn parse(tokens: TokenStream, attribute: Span, errors: &mut Errors) -> Args {
        let mut args = Args {
            keys: Vec::new(),
            several_keys: false,
            lease: None,
            wait: None,
            max_hold: None,
            min_hold: None,
            once: OnceArguments::default(),
            conditions: RunConditions::default(),
            min_replicas: None,
            kind: KindArguments::default(),
            manager: None,
            finish_on_loss: false,
            on_error: None,
            label: None,
            metadata: None,
            key_fn: None,
            krate: parse_quote!(::distlock),
        };
        let mut given = Given::default();
        for Assignment {
            argument,
            place,
            value,
        } in parse_assignments(tokens, errors)
        {
            let other = match argument {
                Argument::Key => Some(Argument::Keys),
                Argument::Keys => Some(Argument::Key),
                _ => None,
            };
            if given.contains(argument) {
                errors.push_at(place, format!("`{argument}` is given twice: keep one"));
                continue;
            }
            if other.is_some_and(|other| given.contains(other)) {
                errors.push_at(
                    place,
                    "`key` and `keys` are both given: write every key in `keys`",
                );
                continue;
            }
            let value = value.filter(|value| {
                let checked = control_flow::check(argument, value);
                checked.map_err(|error| errors.push(error)).is_ok()
            });
            given.0.push((argument, value.as_ref().map(Expr::span)));
            if let Some(value) = value
                && let Err(error) = args.set(argument, value)
            {
                errors.push(error);
            }
        }
        args.check_durations(&given, errors);
        args.kind.check(args.several_keys, errors);
        args.conditions.check(errors);
        OnceArguments::check(&given, errors);
        if !given.contains(Argument::Key) && !given.contains(Argument::Keys) {
            errors.push_at(
                attribute,
                "`key` is missing: write `#[distributed_lock(key = \"inventory:<item_id>\")]`, \
                 where `<item_id>` inserts a parameter",
            );
        }
        args
    }

    fn set(&mut self, argument: Argument, value: Expr) -> syn::Result<()> {
        let time = |range, value| Time::read(argument, range, value).map(Some);
        match argument {
            Argument::Key => self.keys = vec![read_key(&value)?],
            Argument::Keys => (self.keys, self.several_keys) = (read_keys(&value)?, true),
            Argument::Lease => self.lease = time(limits::LEASE, value)?,
            Argument::Wait => self.wait = time(limits::WAIT, value)?,
            Argument::MaxHold => self.max_hold = time(limits::MAX_HOLD, value)?,
            Argument::MinHold => self.min_hold = time(limits::MIN_HOLD, value)?,
            Argument::OncePer => self.once.per = time(limits::RECORD, value)?,
            Argument::OnceFor => self.once.value = Some(once::read_value(value)?),
            Argument::RecordTtl => self.once.record_ttl = time(limits::RECORD, value)?,
            Argument::OnBusy => self.conditions.on_busy = Some(OnBusy::read(argument, value)?),
            Argument::RunIf => self.conditions.run_if = Some(value::expression(argument, value)?),
            Argument::LockIf => self.conditions.lock_if = Some(value::expression(argument, value)?),
            Argument::MinReplicas => self.min_replicas = Some(read_min_replicas(argument, &value)?),
            Argument::Permits => self.kind.permits = Some(Count::read(argument, value)?),
            Argument::Weight => self.kind.weight = Some(Count::read(argument, value)?),
            Argument::Mode => self.kind.mode = Some(Mode::read(argument, &value)?),
            Argument::Manager => self.manager = Some(value::expression(argument, value)?),
            Argument::OnLost => self.finish_on_loss = read_on_lost(argument, &value)?,
            Argument::OnError => self.on_error = Some(value::function(argument, value)?),
            Argument::Label => self.label = Some(read_label(argument, &value)?),
            Argument::Metadata => self.metadata = Some(read_metadata(value)?),
            Argument::KeyFn => self.key_fn = Some(read_key_fn(argument, &value)?),
            Argument::Crate => self.krate = read_crate(value)?,
        }
        Ok(())
    }

    /// Reports durations that contradict each other.
    fn check_durations(&self, given: &Given, errors: &mut Errors) {
        let Some(min_hold_at) = given.place(Argument::MinHold) else {
            return;
        };
        if self.several_keys && self.min_hold.is_some() {
            errors.push_at(
                min_hold_at,
                "`min_hold` cannot be used with `keys`: keep a single `key` for what must not run twice, and \
                 call a function with `keys` from its body",
            );
        }
        // Expressions are checked when the function is called.
        let literal = |time: &Option<Time>| time.as_ref().and_then(Time::millis);
        let min_hold = literal(&self.min_hold);
        if let (Some(min_hold), Some(max_hold)) = (min_hold, literal(&self.max_hold))
            && min_hold > max_hold
        {
            errors.push_at(
                min_hold_at,
                "`min_hold` is longer than `max_hold`, after which the body is stopped: make it at most as long, or \
                 raise `max_hold`",
            );
        }
        if let (Some(wait), Some(min_hold)) = (literal(&self.wait), min_hold)
            && wait >= min_hold
            && let Some(wait_at) = given.place(Argument::Wait)
        {
            errors.push_at(
                wait_at,
                "`wait` is not shorter than `min_hold`, so a call that waits gets the key when `min_hold` ends, and runs the job a \
                 second time: make `wait` shorter (`\"0s\"` tries once), or `min_hold` longer",
            );
        }
    }

    /// Returns true if an expression that is evaluated before the body needs this parameter.
    pub(crate) fn mentions(&self, parameter: &Ident) -> bool {
        let times = [&self.lease, &self.wait, &self.max_hold, &self.min_hold];
        let mut exprs = times
            .into_iter()
            .flatten()
            .filter_map(Time::expr)
            .chain(self.once.exprs())
            .chain(self.conditions.conditions())
            .chain(&self.metadata)
            .chain(&self.manager);
        self.kind.mentions(parameter)
            || exprs.any(|expr| captures::mentions(expr.to_token_stream(), parameter))
    }
}

/// The arguments that are given, each with the place of its value if that could be read.
#[derive(Default)]
pub(crate) struct Given(Vec<(Argument, Option<Span>)>);

impl Given {
    fn contains(&self, argument: Argument) -> bool {
        self.0.iter().any(|(given, _)| *given == argument)
    }

    fn place(&self, argument: Argument) -> Option<Span> {
        let mut given = self.0.iter();
        given.find(|(given, _)| *given == argument)?.1
    }
}

/// An argument `name = value`, without a value if it could not be read, which is already reported.
struct Assignment {
    argument: Argument,
    place: Span,
    value: Option<Expr>,
}

fn parse_assignments(tokens: TokenStream, errors: &mut Errors) -> Vec<Assignment> {
    let mut assignments = Vec::new();
    let parser = |input: ParseStream<'_>| {
        while !input.is_empty() {
            assignments.extend(assignment(input, errors));
            if input.is_empty() || input.parse::<Option<Token![,]>>()?.is_some() {
                continue;
            }
            if starts_argument(input) {
                let next = input.fork().call(Ident::parse_any)?;
                errors.push_at(next.span(), format!("a comma is missing before `{next}`"));
            } else {
                errors.push_at(
                    input.span(),
                    "expected `,` or the end after the argument's value",
                );
                skip_argument(input)?;
            }
        }
        Ok(())
    };
    if let Err(error) = parser.parse2(tokens) {
        errors.push(error);
    }
    assignments
}

/// Reads one argument. After an error, the input is at the comma before the next argument.
fn assignment(input: ParseStream<'_>, errors: &mut Errors) -> Option<Assignment> {
    if input.peek(Lit) {
        let error = match input.parse::<Lit>() {
            Ok(Lit::Str(text)) => syn::Error::new(
                text.span(),
                format!("an argument has a name: write `key = {:?}`", text.value()),
            ),
            Ok(other) => not_an_argument(other.span()),
            Err(error) => error,
        };
        errors.push(error);
        let _ = skip_argument(input);
        // Whatever the literal is, it was meant as the key.
        return Some(Assignment {
            argument: Argument::Key,
            place: Span::call_site(),
            value: None,
        });
    }
    let Ok(name) = input.call(Ident::parse_any) else {
        errors.push(not_an_argument(input.span()));
        let _ = skip_argument(input);
        return None;
    };
    let place = name.span();
    let argument = match Argument::named(&name) {
        Ok(argument) => argument,
        Err(error) => {
            errors.push(error);
            let _ = skip_argument(input);
            return None;
        }
    };
    let example = argument.example();
    let mut value = None;
    if !input.peek(Token![=]) || input.peek(Token![==]) {
        errors.push_at(
            place,
            format!("`{argument}` takes its value after `=`: write `{example}`"),
        );
        let _ = skip_argument(input);
    } else {
        let _ = input.parse::<Token![=]>();
        if input.is_empty() || input.peek(Token![,]) {
            errors.push_at(
                place,
                format!("`{argument}` has no value: write `{example}`"),
            );
        } else {
            match input.parse::<Expr>() {
                Ok(expr) => value = Some(expr),
                Err(error) => {
                    errors.push(error);
                    let _ = skip_argument(input);
                }
            }
        }
    }
    Some(Assignment {
        argument,
        place,
        value,
    })
}

fn starts_argument(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    ahead.call(Ident::parse_any).is_ok() && ahead.peek(Token![=]) && !ahead.peek(Token![==])
}

/// Skips to the next comma that an argument follows.
fn skip_argument(input: ParseStream<'_>) -> syn::Result<()> {
    while !input.is_empty() {
        if input.peek(Token![,]) {
            let ahead = input.fork();
            ahead.parse::<Token![,]>()?;
            if ahead.is_empty() || starts_argument(&ahead) {
                break;
            }
        }
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

fn not_an_argument(span: Span) -> syn::Error {
    syn::Error::new(
        span,
        format!(
            "expected an argument such as `{}`; the arguments are {}",
            Argument::Key.example(),
            argument_list()
        ),
    )
}

fn read_key(value: &Expr) -> syn::Result<LitStr> {
    string_literal(value).cloned().ok_or_else(|| {
        syn::Error::new_spanned(
            value,
            "`key` must be a string literal, because it is checked at compile time: write what \
             changes from call to call as a placeholder, `key = \"inventory:<item_id>\"`",
        )
    })
}

fn read_keys(value: &Expr) -> syn::Result<Vec<LitStr>> {
    let refuse = |what: &str| {
        let message = format!("{what}: write `{}`", Argument::Keys.example());
        Err(syn::Error::new_spanned(value, message))
    };
    let Expr::Array(list) = without_groups(value) else {
        return refuse("`keys` is a list of string literals, which is checked at compile time");
    };
    match list.elems.len() {
        0 => refuse("`keys` is empty"),
        1..=MAX_KEYS => list.elems.iter().map(read_key).collect(),
        count => refuse(&format!(
            "`keys` has {count} keys, and at most {MAX_KEYS} are allowed"
        )),
    }
}

fn read_min_replicas(argument: Argument, value: &Expr) -> syn::Result<u32> {
    let example = argument.example();
    let message = match value::int_literal(value).map(LitInt::base10_parse) {
        Some(Ok(n)) => return Ok(n),
        Some(Err(_)) => format!("`min_replicas` is a number of replicas: write `{example}`"),
        None => value::number_mistake(argument, value).unwrap_or_else(|| {
            format!(
                "`min_replicas` is a number, such as `{example}`: for a value known only at run time, use \
                 `LockManagerBuilder::min_replicas`"
            )
        }),
    };
    Err(syn::Error::new_spanned(value, message))
}

fn read_on_lost(argument: Argument, value: &Expr) -> syn::Result<bool> {
    match string_literal(value).map(LitStr::value).as_deref() {
        Some("cancel") => Ok(false),
        Some("finish") => Ok(true),
        _ => Err(value::expected_words(
            argument,
            value,
            &["cancel", "finish"],
            "`on_lost` is \"cancel\" (a lost lock stops the body at its next await; the default) \
             or \"finish\" (the body runs to its end)",
        )),
    }
}

fn read_label(argument: Argument, value: &Expr) -> syn::Result<LitStr> {
    let mistake = match string_literal(value) {
        None => {
            "`label` must be a string literal, because metrics need one name for all calls: write"
        }
        Some(text) if text.value().is_empty() => {
            "`label` is empty: leave it out to use the template of the key, or write"
        }
        Some(text) if text.value().contains(is_hidden) => {
            "`label` contains a control character: write"
        }
        Some(text) => return Ok(text.clone()),
    };
    let message = format!("{mistake} `{}`", argument.example());
    Err(syn::Error::new_spanned(value, message))
}

/// Reads a text. Only a literal can be checked here.
fn read_metadata(value: Expr) -> syn::Result<Expr> {
    let text = string_literal(&value).map(LitStr::value);
    let text = text.unwrap_or_default();
    let mistake = if text.len() > MAX_METADATA {
        format!("has {} bytes: write at most {MAX_METADATA}", text.len())
    } else if text.contains(is_hidden) {
        "contains a control character: remove it".to_owned()
    } else {
        return Ok(value);
    };
    Err(syn::Error::new_spanned(
        value,
        format!("`metadata` {mistake}"),
    ))
}

fn read_key_fn(argument: Argument, value: &Expr) -> syn::Result<Ident> {
    let name = match without_groups(value) {
        Expr::Path(path) if path.qself.is_none() => path.path.get_ident(),
        _ => None,
    };
    name.filter(|name| syn::parse2::<Ident>(name.to_token_stream()).is_ok())
        .cloned()
        .ok_or_else(|| {
            let message = format!(
                "`key_fn` is the name of a new function: write a name without quotes and without a path, such as `{}`",
                argument.example()
            );
            syn::Error::new_spanned(value, message)
        })
}

fn read_crate(value: Expr) -> syn::Result<Path> {
    if let Some(text) = string_literal(&value) {
        return Err(syn::Error::new(
            text.span(),
            "write the path without quotes: `crate = ::distlock`",
        ));
    }
    let Expr::Path(ExprPath {
        qself: None, path, ..
    }) = without_groups(&value)
    else {
        return Err(syn::Error::new_spanned(
            value,
            "`crate` is the path of the crate distlock: write `crate = ::distlock`",
        ));
    };
    let first = path.segments[0].ident.to_string();
    let remedy = match first.as_str() {
        _ if path.leading_colon.is_some() => return Ok(path.clone()),
        "crate" | "$crate" => return Ok(path.clone()),
        "self" | "super" => {
            "it would mean something else in each module; write it from the crate's root, \
             `crate = crate::path::to::distlock`"
                .to_owned()
        }
        _ => format!(
            "a local module of that name would be taken instead; write `crate = ::{}`",
            path.segments
                .iter()
                .map(|segment| segment.ident.to_string())
                .collect::<Vec<_>>()
                .join("::")
        ),
    };
    Err(syn::Error::new_spanned(
        path,
        format!("the path of `crate` must be absolute: {remedy}"),
    ))
}

#[cfg(test)]
mod tests;
