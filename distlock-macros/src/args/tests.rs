use super::*;
use quote::{format_ident, quote};

fn errors(tokens: TokenStream) -> Vec<String> {
    let mut errors = Errors::default();
    Args::parse(tokens, Span::call_site(), &mut errors);
    let Err(errors) = errors.finish() else {
        return Vec::new();
    };
    errors.into_iter().map(|error| error.to_string()).collect()
}

#[test]
fn each_error_has_its_own_message() {
    let cases = [
        (quote!(), "`key` is missing"),
        (quote!("inventory"), "write `key = \"inventory\"`"),
        (quote!(key = KEY), "must be a string literal"),
        (quote!(key = "k", key = "l"), "`key` is given twice"),
        (quote!(key), "write `key = \"inventory:<item_id>\"`"),
        (quote!(key = , wait = "1s"), "`key` has no value"),
        (quote!(key = "k", lease("15s")), "write `lease = \"30s\"`"),
        (quote!(key = "k", lease = 15), "write `lease = \"15s\"`"),
        (quote!(key = "k", wait = -1), "cannot be negative"),
        (
            quote!(key = "k", wait = 1.5),
            "an expression of type `Duration`, such as `wait = self.wait`",
        ),
        (
            quote!(key = "k", min_replicas = "1"),
            "write it without quotes",
        ),
        (quote!(key = "k", min_replicas = -1), "cannot be negative"),
        (
            quote!(key = "k", min_replicas = N),
            "`LockManagerBuilder::min_replicas`",
        ),
        (
            quote!(key = "k", min_replicas = 1.5),
            "such as `min_replicas = 1`",
        ),
        (
            quote!(key = "k", min_replica = 1),
            "did you mean `min_replicas`?",
        ),
        (
            quote!(key = "k" wait = "1s"),
            "a comma is missing before `wait`",
        ),
        (quote!(key = "k"; wait = "1s"), "expected `,`"),
        (quote!(key = "k", ttl = "1s"), "did you mean `lease`?"),
        (
            quote!(key = "k", min_hod = "1s"),
            "did you mean `min_hold`?",
        ),
        (
            quote!(key = "k", on_errors = |_| None),
            "did you mean `on_error`?",
        ),
        (
            quote!(key = "k", colour = "1s"),
            "the arguments are `key`, `keys`, `lease`",
        ),
        (quote!(key = "k", permits = 0), "from 1 to 1000"),
        (quote!(key = "k", permits = "3"), "`permits = 3`"),
        (quote!(key = "k", limit = 3), "did you mean `permits`?"),
        (
            quote!(key = "k", permits = 3, weight = 4),
            "write at most `weight = 3`",
        ),
        (quote!(key = "k", weight = n), "there are none"),
        (
            quote!(keys = ["k"], permits = N),
            "`permits` cannot be used with `keys`",
        ),
        (
            quote!(keys = ["k"], mode = "read"),
            "`mode` cannot be used with `keys`",
        ),
        (
            quote!(key = "k", mode = "write", permits = N),
            "two kinds of lock",
        ),
        (quote!(key = "k", mode = "shared"), "\"read\""),
        (quote!(key = "k", mode = read), "write `mode = \"read\"`"),
        (
            quote!(key = "k", on_lost = FINISH),
            "`on_lost = \"finish\"`",
        ),
        (quote!(key = "k", on_busy = (Skip)), "`on_busy = \"skip\"`"),
        (quote!(key = "k", lease = 5m), "write `lease = \"5m\"`"),
        (quote!(key = "k", wait = 1m30s), "write `wait = \"1m30s\"`"),
        (quote!(key = "k", wait = 5x), "write `wait = \"5s\"`"),
        (quote!(key = "k", permits = a?), "`?` in `permits`"),
        (
            quote!(key = "k", on_busy = f().await),
            "`.await` in `on_busy` would wait",
        ),
        (
            quote!(key = "k", on_error = return),
            "`return` in `on_error` would end",
        ),
        (quote!(key = "k", on_lost = "stop"), "\"cancel\""),
        (quote!(key = "k", on_lost = stop), "\"finish\""),
        (quote!(key = "k", on_error = "f"), "without quotes"),
        (quote!(key = "k", on_busy = "wait"), "`on_busy` is \"skip\""),
        (quote!(key = "k", on_busy = 0), "write `on_busy = |_| 0`"),
        (quote!(key = "k", run_if = ok), "`run_if` needs `on_busy`"),
        (quote!(key = "k", lock_if = "ok"), "write it without quotes"),
        (quote!(key = "k", label = LABEL), "one name for all calls"),
        (quote!(key = "k", label = ""), "`label` is empty"),
        (quote!(key = "k", label = "\t"), "control character"),
        (quote!(key = "k", metadata = "\t"), "control character"),
        (quote!(key = "k", key_fn = a::b), "without a path"),
        (quote!(key = "k", key_fn = Self), "without a path"),
        (
            quote!(keys = ["k"], min_hold = N),
            "cannot be used with `keys`",
        ),
        (
            quote!(key = "k", once_per = "999ms"),
            "write at least \"1s\"",
        ),
        (quote!(key = "k", once_per = "367d"), "at most 366 days"),
        (quote!(key = "k", once_for = ""), "`once_for` is empty"),
        (
            quote!(key = "k", once_for = "<event.id>"),
            "without quotes, `once_for = event.id`",
        ),
        (
            quote!(key = "k", once_per = P, once_for = day),
            "are both given",
        ),
        (
            quote!(key = "k", once_per = P, record_ttl = TTL),
            "there is no `once_for`",
        ),
        (
            quote!(key = "k", once_for = "", record_ttl = TTL),
            "`once_for` is empty",
        ),
        (quote!(key = "k", every = "1h"), "did you mean `once_per`?"),
        (
            quote!(key = "k", idempotency_key = id),
            "did you mean `once_for`?",
        ),
        (quote!(key = "k", crate = "::x"), "without quotes"),
        (quote!(key = "k", crate = x::y), "write `crate = ::x::y`"),
        (quote!(key = "k", crate = super::x), "from the crate's root"),
        (quote!(key = "k", crate = 1), "the path of the crate"),
    ];
    for (tokens, expected) in cases {
        let text = tokens.to_string();
        let found = errors(tokens);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].contains(expected), "{text}: {found:?}");
    }
}

#[test]
fn success_records_exclude_what_they_cannot_be_combined_with() {
    for (once, argument) in [
        ("once_per", quote!(once_per = P)),
        ("once_for", quote!(once_for = day)),
    ] {
        for (other, arguments) in [
            ("keys", quote!(keys = ["k"])),
            ("permits", quote!(key = "k", permits = N)),
            ("mode", quote!(key = "k", mode = "read")),
            ("min_hold", quote!(key = "k", min_hold = MIN)),
            ("lock_if", quote!(key = "k", lock_if = ok)),
        ] {
            let found = errors(quote!(#arguments, #argument));
            assert_eq!(found.len(), 1, "{once} with {other}: {found:?}");
            let expected = format!("`{once}` cannot be used with `{other}`, ");
            assert!(found[0].starts_with(&expected), "{found:?}");
        }
    }
}

#[test]
fn texts_have_a_limit() {
    for (argument, length, is_legal) in [
        ("metadata", 0, true),
        ("metadata", 256, true),
        ("metadata", 257, false),
        ("once_for", 0, false),
        ("once_for", 128, true),
        ("once_for", 129, false),
    ] {
        let (name, text) = (format_ident!("{argument}"), "x".repeat(length));
        let found = errors(quote!(key = "k", #name = #text));
        assert_eq!(found.is_empty(), is_legal, "{argument} {length}: {found:?}");
    }
}

#[test]
fn literals_and_expressions_are_accepted() {
    for tokens in [
        quote!(
            key = "k",
            lease = "1d",
            wait = self.waits[0].of::<T>(Unit::Second)
        ),
        quote!(key = "k", min_hold = MIN, max_hold = "1ms", wait = "24h"),
        quote!(
            key = "k",
            on_busy = |error| Err(error?),
            run_if = !paused,
            lock_if = a && b
        ),
        quote!(
            key = "k",
            once_for = self.fire_time(),
            record_ttl = "366d",
            run_if = ok,
            on_busy = "skip"
        ),
        quote!(key = "k", once_per = "1s", max_hold = "1m"),
        quote!(
            key = "k",
            label = "a b",
            metadata = job.id(),
            key_fn = r#type
        ),
    ] {
        let text = tokens.to_string();
        assert_eq!(errors(tokens), Vec::<String>::new(), "{text}");
    }
}

/// Editors show this one table, and docs.rs shows it below the examples, which have no second one.
#[test]
fn the_documentation_has_a_row_for_each_argument() {
    let names = |text: &'static str, row: &'static str| {
        let rows = text.lines().filter_map(move |line| line.strip_prefix(row));
        rows.map(|row| row.split([' ', '`']).next().unwrap_or_default())
    };
    let (table, _) = include_str!("../lib.rs")
        .split_once("/// # Key templates")
        .unwrap();
    let arguments = || Argument::ALL.iter().map(|argument| argument.name());
    assert!(names(table, "/// | `").eq(arguments()));

    let examples = include_str!("../../../distlock/src/doc/uses.md");
    assert!(examples.contains("[arguments](#arguments)"));
    let repeated: Vec<_> = names(examples, "| `").collect();
    assert_eq!(repeated, [""; 0]);
}
