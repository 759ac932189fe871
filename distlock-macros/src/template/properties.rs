//! Any text is a template by the grammar of the documentation, or a list of messages.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;

use super::*;

const PARAMETERS: [&str; 4] = ["item_id", "order", "r#type", "N"];

/// A template as its reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Text(String),
    Value(String),
}

fn parse(text: &str) -> Result<Vec<Seen>, Vec<String>> {
    let span = Span::call_site();
    let scope = Scope {
        function: Ident::new("reserve", span),
        names: PARAMETERS
            .iter()
            .map(|name| identifier(name, span))
            .collect(),
        receiver: Some(Token![self](span)),
        patterns_are_hidden: false,
    };
    let mut mistakes = Mistakes::default();
    let template = Template::parse(&LitStr::new(text, span), &scope, &mut mistakes);
    if let Err(errors) = mistakes.finish() {
        return Err(errors.into_iter().map(|error| error.to_string()).collect());
    }
    let parts = template.parts.into_iter().map(|part| match part {
        Part::Literal(text) => Seen::Text(text),
        Part::Value { placeholder, expr } => {
            // What the placeholder says is what is inserted, by reference.
            let expr = expr.to_string().replace([' ', '&'], "").replace("r#", "");
            assert_eq!(expr, placeholder.replace("r#", ""));
            Seen::Value(placeholder)
        }
    });
    Ok(parts.collect())
}

fn print(parts: &[Seen]) -> String {
    let print = |part: &Seen| match part {
        Seen::Text(text) => text.replace('<', "<<").replace('>', ">>"),
        Seen::Value(inside) => format!("<{inside}>"),
    };
    parts.iter().map(print).collect()
}

/// The documentation's grammar, from left to right with nothing but `strip_prefix`.
fn reference(text: &str) -> Option<Vec<Seen>> {
    let mut parts: Vec<Seen> = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let literal = if let Some(after) = rest.strip_prefix("<<").or(rest.strip_prefix(">>")) {
            rest = after;
            c
        } else if let Some(after) = rest.strip_prefix('<') {
            let (inside, after) = after.split_once('>')?;
            if !is_placeholder(inside) {
                return None;
            }
            parts.push(Seen::Value(inside.to_owned()));
            rest = after;
            continue;
        } else if c == '>' || c.is_control() {
            return None;
        } else {
            rest = &rest[c.len_utf8()..];
            c
        };
        match parts.last_mut() {
            Some(Seen::Text(text)) => text.push(literal),
            _ => parts.push(Seen::Text(literal.to_string())),
        }
    }
    is_legal(&parts).then_some(parts)
}

/// Not empty, not too long, and no braces or one pair around something that is no parameter's name.
fn is_legal(parts: &[Seen]) -> bool {
    let least: usize = parts
        .iter()
        .map(|part| {
            if let Seen::Text(text) = part {
                text.len()
            } else {
                1
            }
        })
        .sum();
    // A value has no braces; this stands for it.
    let key: String = parts
        .iter()
        .map(|part| {
            if let Seen::Text(text) = part {
                text
            } else {
                "\0"
            }
        })
        .collect();
    let braces: String = key.chars().filter(|c| "{}".contains(*c)).collect();
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag);
    let tagged = match (&*braces, tag) {
        ("", _) => true,
        ("{}", Some(tag)) => !tag.is_empty() && (tag.contains('\0') || !is_placeholder(tag)),
        _ => false,
    };
    !parts.is_empty() && least <= 512 && tagged
}

fn is_placeholder(inside: &str) -> bool {
    let mut steps = inside.split('.');
    let root = steps.next().unwrap_or_default();
    let known = |name: &str| {
        PARAMETERS.contains(&name)
            || PARAMETERS.contains(&&*format!("r#{name}"))
            || name
                .strip_prefix("r#")
                .is_some_and(|name| PARAMETERS.contains(&name))
    };
    (root == "self" || known(root)) && steps.all(is_step)
}

fn is_step(step: &str) -> bool {
    if step
        .parse::<u32>()
        .is_ok_and(|index| index.to_string() == step)
    {
        return true;
    }
    let name = step.strip_suffix("()").unwrap_or(step);
    let plain = name.strip_prefix("r#").unwrap_or(name);
    // The soup and the shrunk texts know no other letters.
    let is_word = plain.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && plain.chars().all(|c| c.is_alphanumeric() || c == '_');
    let never_raw = ["self", "Self", "super", "crate", "_"].contains(&plain);
    is_word && !never_raw && name != "await"
}

/// Texts that are nearly templates.
fn soup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => select(vec!["<item_id>", "<order.id>", "<self.tenant()>", "<type>", "<r#type>", "<N>", "<order.0.1>"]),
        8 => select(vec!["inventory:", ":", "{", "}", "<<", ">>", "{tenant:", "}:stock", " ", "é", "日本", "\u{202e}"]),
        2 => select(vec!["<", ">", ".", "()", "item_id", "order", "self", "type", "N", "id", "0", "r#", "_", "%3A"]),
        1 => select(vec!["<order.007>", "<order.1_0>", "<order.r#self>", "<order.await>", "<order.r#await>", "<_>", "<order._>",
            "<Self>", "<r#self>", "<crate>", "<order.id(1)>", "<order.id ()>", "<order/**/>", "<order.id:04>", "<order.>",
            "<.order>", "<>", "<0>", "<order.4294967296>", "<self>", "{item_id}", "{order.id}", "{self.x}", "{<N>}"]),
        1 => select(vec!["\n", "\0", "\u{7f}", "\u{85}", "await", "crate", "::", "+1", "007", "\"", "\\", "//", "/*", "'a"]),
    ];
    prop::collection::vec(piece, 0..7).prop_map(|pieces| pieces.concat())
}

/// Templates that are right, as a list of parts.
fn right() -> impl Strategy<Value = Vec<Seen>> {
    let text = prop_oneof![
        "[a-z:<>% /é-]{1,8}".prop_map(Seen::Text),
        any::<String>().prop_map(|text| Seen::Text(
            text.replace(|c: char| c.is_control() || "{}".contains(c), "-")
        )),
    ];
    let value = select(vec![
        "item_id",
        "order.id",
        "order.0.type",
        "self.tenant()",
        "type",
        "r#type.r#in()",
        "N",
    ])
    .prop_map(|inside| Seen::Value(inside.to_owned()));
    let parts = prop::collection::vec(prop_oneof![text, value], 1..8);
    (parts, any::<bool>()).prop_map(|(mut parts, tagged)| {
        if tagged {
            parts.insert(0, Seen::Text("{tenant:".into()));
            parts.push(Seen::Text("}".into()));
        }
        let mut merged: Vec<Seen> = Vec::new();
        for part in parts {
            match (merged.last_mut(), part) {
                (_, Seen::Text(text)) if text.is_empty() => {}
                (Some(Seen::Text(before)), Seen::Text(text)) => before.push_str(&text),
                (_, part) => merged.push(part),
            }
        }
        merged
    })
}

fn agree(text: &str) -> Result<(), TestCaseError> {
    match parse(text) {
        Ok(parts) => {
            prop_assert_eq!(
                Some(parts.clone()),
                reference(text),
                "{:?} was accepted",
                text
            );
            prop_assert_eq!(parse(&print(&parts)), Ok(parts), "printed and read again");
        }
        Err(messages) => {
            prop_assert_eq!(
                None,
                reference(text),
                "{:?} was refused: {:?}",
                text,
                &messages
            );
            for message in messages {
                prop_assert!(message.len() > 20, "{:?} only says {:?}", text, message);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_template_by_the_documentation_or_refused(text in any::<String>()) {
        agree(&text)?;
    }

    #[test]
    fn what_is_nearly_a_template_is_judged_like_the_documentation(text in soup()) {
        agree(&text)?;
    }

    #[test]
    fn what_is_right_is_read_as_it_was_meant(parts in right()) {
        prop_assume!(is_legal(&parts));
        prop_assert_eq!(parse(&print(&parts)), Ok(parts));
    }
}

/// The soup is of use only if enough of it is accepted.
#[test]
fn both_verdicts_are_common() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let texts = (0..2_000).map(|_| soup().new_tree(&mut runner).unwrap().current());
    let accepted = texts.filter(|text| reference(text).is_some()).count();
    assert!(
        (200..1_800).contains(&accepted),
        "{accepted} of 2000 are templates"
    );
}
