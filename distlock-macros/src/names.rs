//! The names of the arguments.

use proc_macro2::Ident;
use syn::ext::IdentExt as _;

use crate::errors::{list, nearest};

/// Every argument, with an example that can be pasted.
pub(crate) const ARGUMENTS: [(&str, &str); 23] = [
    ("key", "key = \"inventory:<item_id>\""),
    ("keys", "keys = [\"account:<from>\", \"account:<to>\"]"),
    ("lease", "lease = \"30s\""),
    ("wait", "wait = \"10s\""),
    ("max_hold", "max_hold = \"5m\""),
    ("min_hold", "min_hold = \"10s\""),
    ("once_per", "once_per = \"1h\""),
    ("once_for", "once_for = event.id"),
    ("record_ttl", "record_ttl = \"30d\""),
    ("on_busy", "on_busy = \"skip\""),
    ("run_if", "run_if = self.is_enabled"),
    ("lock_if", "lock_if = self.is_shared"),
    ("min_replicas", "min_replicas = 1"),
    ("permits", "permits = 3"),
    ("weight", "weight = 2"),
    ("mode", "mode = \"read\""),
    ("manager", "manager = self.locks"),
    ("on_lost", "on_lost = \"finish\""),
    ("on_error", "on_error = |error| None"),
    ("label", "label = \"reservations\""),
    ("metadata", "metadata = job_id"),
    ("key_fn", "key_fn = reserve_key"),
    ("crate", "crate = ::distlock"),
];

/// The names of these arguments in other lock libraries.
const FOREIGN_NAMES: [(&str, &str); 24] = [
    ("name", "key"),
    ("resource", "key"),
    ("ttl", "lease"),
    ("expire", "lease"),
    ("lease_time", "lease"),
    ("timeout", "wait"),
    ("wait_time", "wait"),
    ("acquire_timeout", "wait"),
    ("lock_at_most_for", "max_hold"),
    ("lock_at_least_for", "min_hold"),
    ("period", "once_per"),
    ("every", "once_per"),
    ("interval", "once_per"),
    ("unique_for", "once_per"),
    ("idempotency_key", "once_for"),
    ("retention", "record_ttl"),
    ("replicas", "min_replicas"),
    ("wait_replicas", "min_replicas"),
    ("limit", "permits"),
    ("max_concurrency", "permits"),
    ("on_conflict", "on_busy"),
    ("condition", "run_if"),
    ("fallback", "on_error"),
    ("krate", "crate"),
];

/// Returns the error for an argument that does not exist.
pub(crate) fn unknown(name: &Ident) -> syn::Error {
    let text = name.unraw().to_string();
    let names = ARGUMENTS.iter().map(|(legal, _)| *legal);
    let suggestion = FOREIGN_NAMES
        .iter()
        .find(|(other, _)| *other == text)
        .map(|(_, ours)| *ours)
        .or_else(|| nearest(&text, names));
    let suggestion = suggestion.map_or(String::new(), |suggestion| {
        format!("did you mean `{suggestion}`? ")
    });
    syn::Error::new(
        name.span(),
        format!(
            "unknown argument `{text}`: {suggestion}the arguments are {}",
            argument_list()
        ),
    )
}

/// Returns the example of an argument.
pub(crate) fn example(argument: &str) -> &'static str {
    ARGUMENTS
        .iter()
        .find(|(legal, _)| *legal == argument)
        .map_or(ARGUMENTS[0].1, |(_, example)| example)
}

pub(crate) fn argument_list() -> String {
    list(ARGUMENTS.iter().map(|(legal, _)| *legal))
}
