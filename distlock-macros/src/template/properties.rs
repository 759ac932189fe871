//! Checks that any text is either a template by the documented grammar, or gives messages.

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
        hidden: Vec::new(),
    };
    let mut errors = Errors::default();
    let template = Template::parse(&LitStr::new(text, span), &scope, &mut errors);
    if let Err(errors) = errors.finish() {
        return Err(errors.into_iter().map(|error| error.to_string()).collect());
    }
    let parts = template.parts.into_iter().map(|part| match part {
        Part::Literal(text) => Seen::Text(text),
        Part::Value {
            placeholder, expr, ..
        } => {
            // A placeholder inserts exactly what it names, by reference.
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

/// Parses by the documented grammar, from left to right, with nothing but `strip_prefix`.
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
    (is_legal(&parts) && values_have_ends(&parts)).then_some(parts)
}

/// Returns true if there is text between two values, without `%` at its start.
fn values_have_ends(parts: &[Seen]) -> bool {
    let between: Vec<&Seen> = parts
        .iter()
        .skip_while(|part| matches!(part, Seen::Text(_)))
        .collect();
    between.windows(2).enumerate().all(|(at, pair)| match pair {
        [Seen::Value(_), Seen::Value(_)] => false,
        [Seen::Value(_), Seen::Text(text)] => at + 2 == between.len() || !text.starts_with('%'),
        _ => true,
    })
}

/// Returns true if the template is not empty or too long, and has no other language's placeholders.
/// It may have one pair of braces, around a hash tag.
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
    // Takes the place of a value, which contains no braces.
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
    let tagged = match &*braces {
        "" => !has_signs(&key),
        "{}" => {
            let (before, rest) = key.split_once('{').expect("a brace");
            let (tag, after) = rest.split_once('}').unwrap_or(("", ""));
            let signed = before.ends_with(['#', '$']) && names_a_parameter(&first_word(tag));
            let is_tag = tag.contains('\0')
                || is_text_of_tags(tag.strip_suffix(':').unwrap_or("")) && !signed
                || is_text_of_tags(tag) && key.contains('\0') && !signed && !may_be_code(tag);
            let others = if tag.contains('\0') {
                has_signs(&key)
            } else {
                // The brace in between is not the start of a key, and not part of a word.
                has_signs(before) || has_signs(&format!("}}{after}"))
            };
            is_tag && !others
        }
        _ => false,
    };
    !parts.is_empty() && least <= 512 && tagged
}

fn names_a_parameter(word: &str) -> bool {
    let names = ["self", "item_id", "order", "type", "N"];
    names.contains(&word.strip_prefix("r#").unwrap_or(word)) || nearest(word, names).is_some()
}

fn first_word(text: &str) -> String {
    let raw = if text.starts_with("r#") { 2 } else { 0 };
    let word = text[raw..]
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_');
    text[..raw].chars().chain(word).collect()
}

fn is_text_of_tags(text: &str) -> bool {
    let strange = |c: char| match c {
        '_' | '-' | '/' | ':' | '@' | '%' => false,
        _ => c.is_whitespace() || c.is_ascii() && !c.is_ascii_alphanumeric(),
    };
    text.contains(char::is_alphanumeric) && !text.contains(strange) && !text.contains("::")
}

/// Returns true for a possible tag that is a parameter's name, an index, or has a format.
fn may_be_code(tag: &str) -> bool {
    let word = first_word(tag);
    match tag[word.len()..].strip_prefix(':') {
        None if word == tag => names_a_parameter(&word) || tag.parse::<u64>().is_ok(),
        None => tag
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| ["self", "item_id", "order", "type", "N"].contains(&word)),
        Some(format) => {
            let digits = format
                .trim_start_matches('-')
                .trim_end_matches(char::is_alphabetic);
            let format_like = !format.is_empty()
                && format.matches('-').count() <= usize::from(format.starts_with('-'))
                && digits.chars().all(|c| c.is_ascii_digit())
                && format
                    .chars()
                    .filter(|c| !c.is_ascii_digit() && *c != '-')
                    .count()
                    <= 1
                && format
                    .chars()
                    .last()
                    .is_some_and(|c| c.is_ascii_digit() || c == '-' || "oxXbeEp".contains(c));
            names_a_parameter(&word) || format_like
        }
    }
}

/// Returns true for `#name`, `$name`, `/:name`, and `:name` at the start.
fn has_signs(text: &str) -> bool {
    text.char_indices().any(|(at, c)| {
        let word = first_word(&text[at + c.len_utf8()..]);
        match c {
            '#' | '$' => names_a_parameter(&word),
            ':' => {
                (at == 0 || text[..at].ends_with('/'))
                    && ["self", "item_id", "order", "type", "N"]
                        .contains(&word.trim_start_matches("r#"))
            }
            _ => false,
        }
    })
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
    // The generated and the shrunk strings contain no other letters.
    let is_word = plain.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && plain.chars().all(|c| c.is_alphanumeric() || c == '_');
    let never_raw = ["self", "Self", "super", "crate", "_"].contains(&plain);
    is_word && !never_raw && name != "await"
}

/// Generates strings that are nearly templates.
fn soup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => select(vec!["<item_id>", "<order.id>", "<self.tenant()>", "<type>", "<r#type>", "<N>", "<order.0.1>"]),
        8 => select(vec!["inventory:", ":", "{", "}", "<<", ">>", "{tenant:", "}:stock", " ", "é", "日本", "\u{202e}"]),
        2 => select(vec!["<", ">", ".", "()", "item_id", "order", "self", "type", "N", "id", "0", "r#", "_", "%3A"]),
        1 => select(vec!["<order.007>", "<order.1_0>", "<order.r#self>", "<order.await>", "<order.r#await>", "<_>", "<order._>",
            "<Self>", "<r#self>", "<crate>", "<order.id(1)>", "<order.id ()>", "<order/**/>", "<order.id:04>", "<order.>",
            "<.order>", "<>", "<0>", "<order.4294967296>", "<self>", "{item_id}", "{order.id}", "{self.x}", "{<N>}"]),
        2 => select(vec!["#", "$", "/:", "#item_id", "$ordr", ":N", "/:order", "{stock}", "{stock:}", "{itm_id}", "{order:x}", "{a:-4}",
            "{eu-west}", "{a-N}", "{0}", "{7:}", "{::}", "{item_id:}", "$self.x", "itemId", "r#type"]),
        1 => select(vec!["\n", "\0", "\u{7f}", "\u{85}", "await", "crate", "::", "+1", "007", "\"", "\\", "//", "/*", "'a"]),
    ];
    prop::collection::vec(piece, 0..7).prop_map(|pieces| pieces.concat())
}

/// Generates correct templates, as lists of parts.
fn valid_templates() -> impl Strategy<Value = Vec<Seen>> {
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
                (Some(Seen::Value(_)), Seen::Value(next)) => {
                    merged.extend([Seen::Text("-".into()), Seen::Value(next)]);
                }
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
    fn near_templates_are_judged_as_documented(text in soup()) {
        agree(&text)?;
    }

    #[test]
    fn valid_templates_parse_to_their_parts(parts in valid_templates()) {
        prop_assume!(is_legal(&parts) && values_have_ends(&parts));
        prop_assert_eq!(parse(&print(&parts)), Ok(parts));
    }
}

/// The generated strings are useful only if enough of them are accepted.
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
