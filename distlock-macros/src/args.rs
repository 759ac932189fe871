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

use crate::args::once::Once;
use crate::captures;
use crate::duration::Time;
use crate::errors::Errors;
use crate::kind::Kind;
use crate::names::{ARGUMENTS, argument_list, example, unknown};

use crate::policy::Policy;
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
    pub(crate) once: Once,
    pub(crate) policy: Policy,
    pub(crate) min_replicas: Option<u32>,
    pub(crate) kind: Kind,
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
            once: Once::default(),
            policy: Policy::default(),
            min_replicas: None,
            kind: Kind::default(),
            manager: None,
            finish_on_loss: false,
            on_error: None,
            label: None,
            metadata: None,
            key_fn: None,
            krate: parse_quote!(::distlock),
        };
        // A key with an error must not be reported as missing as well.
        let mut key_is_given = false;
        let mut given_names: Vec<String> = Vec::new();
        let (mut min_hold_at, mut wait_at) = (attribute, attribute);
        for Argument { name, value } in parse_arguments(tokens, errors) {
            let text = name.to_string();
            if matches!(&*text, "key" | "keys") {
                if key_is_given && !given_names.contains(&text) {
                    errors.push_at(
                        name.span(),
                        "`key` and `keys` are both given: write every key in `keys`",
                    );
                    continue;
                }
                key_is_given = true;
            }
            if given_names.contains(&text) {
                errors.push_at(name.span(), format!("`{text}` is given twice: keep one"));
                continue;
            }
            let Some(value) = value else {
                given_names.push(text);
                continue;
            };
            if let Err(error) = control_flow::check(&text, &value) {
                errors.push(error);
                given_names.push(text);
                continue;
            }
            match text.as_str() {
                "min_hold" => min_hold_at = value.span(),
                "wait" => wait_at = value.span(),
                _ => {}
            }
            let result = match text.as_str() {
                "key" => read_key(&value).map(|key| args.keys = vec![key]),
                "keys" => read_keys(&value).map(|keys| {
                    (args.keys, args.several_keys) = (keys, true);
                }),
                "lease" => Time::read(&text, value).map(|time| args.lease = Some(time)),
                "wait" => Time::read(&text, value).map(|time| args.wait = Some(time)),
                "max_hold" => Time::read(&text, value).map(|time| args.max_hold = Some(time)),
                "min_hold" => Time::read(&text, value).map(|time| args.min_hold = Some(time)),
                "once_per" | "once_for" | "record_ttl" => args.once.read(&text, value),
                "on_busy" | "run_if" | "lock_if" => args.policy.read(&text, value),
                "min_replicas" => read_min_replicas(&value).map(|n| args.min_replicas = Some(n)),
                "permits" | "weight" | "mode" => args.kind.read(&text, value),
                "manager" => {
                    value::expression(&text, value).map(|manager| args.manager = Some(manager))
                }
                "on_lost" => read_on_lost(&value).map(|finish| args.finish_on_loss = finish),
                "on_error" => {
                    value::function(&text, value).map(|on_error| args.on_error = Some(on_error))
                }
                "label" => read_label(&value).map(|label| args.label = Some(label)),
                "metadata" => read_metadata(value).map(|text| args.metadata = Some(text)),
                "key_fn" => read_key_fn(&value).map(|name| args.key_fn = Some(name)),
                // `parse_arguments` accepts no other name.
                _ => read_crate(value).map(|path| args.krate = path),
            };
            given_names.push(text);
            if let Err(error) = result {
                errors.push(error);
            }
        }
        args.check_durations(min_hold_at, wait_at, errors);
        args.kind.check(args.several_keys, errors);
        args.policy.check(errors);
        args.once.check(&given_names, errors);
        if !key_is_given {
            errors.push_at(
                attribute,
                "`key` is missing: write `#[distributed_lock(key = \"inventory:<item_id>\")]`, \
                 where `<item_id>` inserts a parameter",
            );
        }
        args
    }

    /// Reports durations that contradict each other.
    fn check_durations(&self, min_hold_at: Span, wait_at: Span, errors: &mut Errors) {
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
        let mut exprs = (times.into_iter().flatten().filter_map(Time::expr))
            .chain(self.once.exprs())
            .chain(self.policy.conditions())
            .chain(&self.metadata)
            .chain(&self.manager);
        self.kind.mentions(parameter)
            || exprs.any(|expr| captures::mentions(expr.to_token_stream(), parameter))
    }
}

/// An argument `name = value`, without a value if it could not be read, which is already reported.
struct Argument {
    name: Ident,
    value: Option<Expr>,
}

fn parse_arguments(tokens: TokenStream, errors: &mut Errors) -> Vec<Argument> {
    let mut arguments = Vec::new();
    let parser = |input: ParseStream<'_>| {
        while !input.is_empty() {
            if let Some(argument) = argument(input, errors) {
                arguments.push(argument);
            }
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
    arguments
}

/// Reads one argument. After an error, the input is at the comma before the next argument.
fn argument(input: ParseStream<'_>, errors: &mut Errors) -> Option<Argument> {
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
        return Some(Argument {
            name: Ident::new("key", Span::call_site()),
            value: None,
        });
    }
    let Ok(name) = input.call(Ident::parse_any) else {
        errors.push(not_an_argument(input.span()));
        let _ = skip_argument(input);
        return None;
    };
    let legal = ARGUMENTS.iter().find(|(legal, _)| name == legal);
    let Some((_, example)) = legal else {
        errors.push(unknown(&name));
        let _ = skip_argument(input);
        return None;
    };
    if !input.peek(Token![=]) || input.peek(Token![==]) {
        errors.push_at(
            name.span(),
            format!("`{name}` takes its value after `=`: write `{example}`"),
        );
        let _ = skip_argument(input);
        return Some(Argument { name, value: None });
    }
    let _ = input.parse::<Token![=]>();
    if input.is_empty() || input.peek(Token![,]) {
        errors.push_at(
            name.span(),
            format!("`{name}` has no value: write `{example}`"),
        );
        return Some(Argument { name, value: None });
    }
    let value = match input.parse::<Expr>() {
        Ok(value) => Some(value),
        Err(error) => {
            errors.push(error);
            let _ = skip_argument(input);
            None
        }
    };
    Some(Argument { name, value })
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
            ARGUMENTS[0].1,
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

/// Largest number of keys, as in the `distlock` crate.
const MAX_KEYS: usize = 64;

fn read_keys(value: &Expr) -> syn::Result<Vec<LitStr>> {
    let refuse = |what: &str| {
        let message = format!("{what}: write `{}`", example("keys"));
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

fn read_min_replicas(value: &Expr) -> syn::Result<u32> {
    let example = example("min_replicas");
    let message = match value::int_literal(value).map(LitInt::base10_parse) {
        Some(Ok(n)) => return Ok(n),
        Some(Err(_)) => format!("`min_replicas` is a number of replicas: write `{example}`"),
        None => value::number_mistake("min_replicas", value).unwrap_or_else(|| {
            format!(
                "`min_replicas` is a number, such as `{example}`: for a value known only at run time, use \
                 `LockManagerBuilder::min_replicas`"
            )
        }),
    };
    Err(syn::Error::new_spanned(value, message))
}

fn read_on_lost(value: &Expr) -> syn::Result<bool> {
    match string_literal(value).map(LitStr::value).as_deref() {
        Some("cancel") => Ok(false),
        Some("finish") => Ok(true),
        _ => Err(value::expected_words(
            "on_lost",
            value,
            &["cancel", "finish"],
            "`on_lost` is \"cancel\" (a lost lock stops the body at its next await; the default) \
             or \"finish\" (the body runs to its end)",
        )),
    }
}

fn read_label(value: &Expr) -> syn::Result<LitStr> {
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
    let message = format!("{mistake} `{}`", example("label"));
    Err(syn::Error::new_spanned(value, message))
}

/// Largest size of metadata, in bytes, as in the `distlock` crate.
const MAX_METADATA: usize = 256;

/// Returns true for a character that the `distlock` crate rejects in names: it ends a line, or sets
/// the direction of text.
fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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

fn read_key_fn(value: &Expr) -> syn::Result<Ident> {
    let name = match without_groups(value) {
        Expr::Path(path) if path.qself.is_none() => path.path.get_ident(),
        _ => None,
    };
    name.filter(|name| syn::parse2::<Ident>(name.to_token_stream()).is_ok())
        .cloned()
        .ok_or_else(|| {
            let message = format!(
                "`key_fn` is the name of a new function: write a name without quotes and without a path, such as `{}`",
                example("key_fn")
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
