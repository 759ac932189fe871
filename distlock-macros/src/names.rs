//! The names of the arguments.

use std::fmt;

use proc_macro2::Ident;
use syn::ext::IdentExt as _;

use crate::errors::{list, nearest};

macro_rules! arguments {
    ($($argument:ident = $name:literal, $example:literal;)*) => {
        /// The name of an argument.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Argument {
            $($argument,)*
        }

        impl Argument {
            pub(crate) const ALL: &[Argument] = &[$(Argument::$argument,)*];

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Argument::$argument => $name,)*
                }
            }

            /// Returns an example that can be pasted.
            pub(crate) fn example(self) -> &'static str {
                match self {
                    $(Argument::$argument => $example,)*
                }
            }
        }
    };
}

arguments! {
    Key = "key", "key = \"inventory:<item_id>\"";
    Keys = "keys", "keys = [\"account:<from>\", \"account:<to>\"]";
    Lease = "lease", "lease = \"30s\"";
    Wait = "wait", "wait = \"10s\"";
    MaxHold = "max_hold", "max_hold = \"5m\"";
    MinHold = "min_hold", "min_hold = \"10s\"";
    OncePer = "once_per", "once_per = \"1h\"";
    OnceFor = "once_for", "once_for = event.id";
    RecordTtl = "record_ttl", "record_ttl = \"30d\"";
    OnBusy = "on_busy", "on_busy = \"skip\"";
    RunIf = "run_if", "run_if = self.is_enabled";
    LockIf = "lock_if", "lock_if = self.is_shared";
    MinReplicas = "min_replicas", "min_replicas = 1";
    Permits = "permits", "permits = 3";
    Weight = "weight", "weight = 2";
    Mode = "mode", "mode = \"read\"";
    Manager = "manager", "manager = self.locks";
    OnLost = "on_lost", "on_lost = \"finish\"";
    OnError = "on_error", "on_error = |error| None";
    Label = "label", "label = \"reservations\"";
    Metadata = "metadata", "metadata = job_id";
    KeyFn = "key_fn", "key_fn = reserve_key";
    Crate = "crate", "crate = ::distlock";
}

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

impl Argument {
    pub(crate) fn named(name: &Ident) -> syn::Result<Argument> {
        let is_named = |argument: &&Argument| name == argument.name();
        let found = Argument::ALL.iter().find(is_named);
        found.copied().ok_or_else(|| unknown(name))
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the error for an argument that does not exist.
fn unknown(name: &Ident) -> syn::Error {
    let text = name.unraw().to_string();
    let names = Argument::ALL.iter().map(|argument| argument.name());
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

pub(crate) fn argument_list() -> String {
    list(Argument::ALL.iter().map(|argument| argument.name()))
}
