use super::*;
use quote::{ToTokens, quote};

fn good(tokens: TokenStream) -> Args {
    let mut mistakes = Mistakes::default();
    let args = Args::parse(tokens, Span::call_site(), &mut mistakes);
    mistakes.finish().expect("no mistakes");
    args
}

fn mistakes(tokens: TokenStream) -> Vec<String> {
    let mut mistakes = Mistakes::default();
    Args::parse(tokens, Span::call_site(), &mut mistakes);
    let Err(errors) = mistakes.finish() else {
        return Vec::new();
    };
    errors.into_iter().map(|error| error.to_string()).collect()
}

#[test]
fn only_the_key_is_required() {
    let args = good(quote!(key = "k"));
    assert_eq!(args.key.unwrap().value(), "k");
    assert_eq!((args.lease, args.wait), (None, None));
    assert_eq!((args.max_hold, args.min_hold), (None, None));
    assert!(args.manager.is_none() && args.on_error.is_none() && !args.finish_on_loss);
    assert_eq!(args.krate.to_token_stream().to_string(), ":: distlock");
}

#[test]
fn every_argument() {
    let args = good(quote! {
        on_error = |_| None::<(u8, u8)>,
        key = "k",
        lease = "15s",
        wait = "0s",
        max_hold = "2m",
        min_hold = "1s",
        min_replicas = 2,
        manager = self.parts::<A, B>(),
        on_lost = "finish",
        crate = crate::vendored::distlock,
    });
    assert_eq!((args.lease, args.wait), (Some(15_000), Some(0)));
    assert_eq!((args.max_hold, args.min_hold), (Some(120_000), Some(1_000)));
    assert_eq!(args.min_replicas, Some(2));
    assert!(args.finish_on_loss && args.on_error.is_some());
    assert_eq!(
        args.manager.to_token_stream().to_string(),
        quote!(self.parts::<A, B>()).to_string()
    );
    assert_eq!(
        args.krate.to_token_stream().to_string(),
        quote!(crate::vendored::distlock).to_string()
    );
}

#[test]
fn each_mistake_has_its_own_message() {
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
        (quote!(key = "k", wait = secs(1)), "checked at compile time"),
        (
            quote!(key = "k", wait = self.waits[0].of::<T>(Unit::Second)),
            "use a `Lock` of your `LockManager` for what is known only at run time:\n",
        ),
        (
            quote!(key = "k", lease = self.lease),
            "    let lock = locks.lock(key).lease(self.lease);\n",
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
            quote!(key = "k", locks = self.locks),
            "`locks` is now named `manager`: write `manager = self.locks`",
        ),
        (
            quote!(key = "k", on_fail = |_| None),
            "`on_fail` is now named `on_error`: write `on_error = |error| None`",
        ),
        (
            quote!(key = "k", on_errors = |_| None),
            "did you mean `on_error`?",
        ),
        (
            quote!(key = "k", colour = "1s"),
            "the arguments are `key`, `lease`",
        ),
        (quote!(key = "k", on_lost = "stop"), "\"cancel\""),
        (quote!(key = "k", on_lost = Cancel), "\"finish\""),
        (quote!(key = "k", on_error = "f"), "without quotes"),
        (quote!(key = "k", crate = "::x"), "without quotes"),
        (quote!(key = "k", crate = x::y), "write `crate = ::x::y`"),
        (quote!(key = "k", crate = super::x), "from the crate's root"),
        (quote!(key = "k", crate = 1), "the path of the crate"),
    ];
    for (tokens, expected) in cases {
        let text = tokens.to_string();
        let found = mistakes(tokens);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].contains(expected), "{text}: {found:?}");
    }
}

#[test]
fn one_mistake_does_not_hide_the_next() {
    let found = mistakes(quote!(lease = "15", waits = "5s", on_lost = "x", key = 1));
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn fragments_of_macro_rules_are_seen_through() {
    let literal = quote!("k");
    let group = TokenTree::Group(proc_macro2::Group::new(
        proc_macro2::Delimiter::None,
        literal,
    ));
    assert_eq!(good(quote!(key = #group)).key.unwrap().value(), "k");
}

/// Where users of an editor look, and to which the documents point.
#[test]
fn the_documentation_has_a_row_for_each_argument() {
    let lines = include_str!("../lib.rs").lines();
    let table = lines
        .skip_while(|line| *line != "/// # Arguments")
        .take_while(|line| *line != "/// # Key templates");
    let rows = table.filter_map(|line| line.strip_prefix("/// | `")?.split_once(" = "));
    let names: Vec<_> = rows.map(|(name, _)| name).collect();
    assert_eq!(names, LEGAL.map(|(name, _)| name));
}
