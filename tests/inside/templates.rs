//! Whatever the arguments are: a key belongs to one list of them, and to the hash tag of its template.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::key::{LockKey, MAX_KEY};

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    /// With what ends it: the start of the text before the next value.
    Value(Option<char>),
}
use Part::{Text, Value};

/// A template of `"texts"` and `""` for values.
fn template(parts: &[&str]) -> Vec<Part> {
    let last = parts.iter().rposition(|part| part.is_empty());
    let parts = parts.iter().enumerate().map(|(at, part)| {
        let end = parts.get(at + 1).and_then(|text| text.chars().next());
        match *part {
            "" => Value(end.filter(|_| Some(at) != last)),
            text => Text(text.to_owned()),
        }
    });
    parts.collect()
}

/// Templates with all that the text between values may begin with.
fn templates() -> Vec<Vec<Part>> {
    let parts: [&[&str]; 16] = [
        &[""],
        &["inventory:", ""],
        &["", ":", ""],
        &["", " ", "", "::", ""],
        &["{tenant:", "", "}:stock:", ""],
        &["{", "", "}", ""],
        &["", "{fixed}", ""],
        &["k", "", "-{", "", "}-", ""],
        &["%7B", "", "3A:", "", "%7D"],
        &["", "-", ""],
        &["", "A1", "", "1A", ""],
        &["", "0", "", "F", ""],
        &["", "2D", "", "D2", ""],
        &["", "é", "", "日本", ""],
        &["", "\u{301}", ""],
        &["to", "", "to", "", "to"],
    ];
    parts.iter().map(|parts| template(parts)).collect()
}

/// Templates as anybody may write them.
fn any_template() -> impl Strategy<Value = Vec<Part>> {
    let text = prop_oneof![
        4 => "[-:/ toA-F0-9é日_.~]{1,3}%{0,1}",
        1 => any::<String>(),
    ];
    let legal = |text: String| {
        let text = text.replace(|c: char| c.is_control() || "{}".contains(c), "");
        let text = text.trim_start_matches('%').to_owned();
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
    prop::collection::vec(text.prop_map(legal), 2..5).prop_map(|texts| {
        let mut parts = vec![texts[0].as_str(), ""];
        for text in &texts[1..] {
            parts.extend([text, ""]);
        }
        template(&parts)
    })
}

fn values(template: &[Part]) -> usize {
    template
        .iter()
        .filter(|part| matches!(part, Value(_)))
        .count()
}

/// As generated code does it, up to the store's key.
fn build(template: &[Part], arguments: &[String]) -> Result<LockKey, Error> {
    let mut arguments = arguments.iter();
    let mut builder = KeyBuilder::new("the template", MAX_KEY);
    for part in template {
        builder = match part {
            // Generated code has it from a literal.
            Text(text) => builder.literal(text.clone().leak()),
            Value(end) => {
                let argument = arguments.next().expect("enough arguments");
                match end {
                    Some(end) => builder.value_before("value", argument, *end),
                    None => builder.value("value", argument),
                }
            }
        };
    }
    LockKey::new(&builder.finish()?)
}

fn is_escaped(c: char) -> bool {
    ":{}%".contains(c) || c.is_whitespace() || c.is_control()
}

fn escaped_length(argument: &str, end: Option<char>) -> usize {
    let length = |c: char| {
        if is_escaped(c) || Some(c) == end {
            3 * c.len_utf8()
        } else {
            c.len_utf8()
        }
    };
    argument.chars().map(length).sum()
}

fn key_length(template: &[Part], arguments: &[String]) -> usize {
    let mut arguments = arguments.iter();
    let length = |part: &Part| match part {
        Text(text) => text.len(),
        Value(end) => escaped_length(arguments.next().expect("enough arguments"), *end),
    };
    template.iter().map(length).sum()
}

/// The arguments that a key was made of: a value ends at the first character that is the start of the
/// text behind it. An escape is one unit, whatever its digits are.
fn read_back(template: &[Part], key: &str) -> Option<Vec<String>> {
    let mut arguments = Vec::new();
    let mut rest = key;
    for (at, part) in template.iter().enumerate() {
        match part {
            Text(text) => rest = rest.strip_prefix(text.as_str())?,
            Value(None) => {
                let behind = match template.get(at + 1) {
                    Some(Text(text)) => text.len(),
                    _ => 0,
                };
                let end = rest.len().checked_sub(behind)?;
                arguments.push(unescape(&rest[..end])?);
                rest = &rest[end..];
            }
            Value(Some(end)) => {
                let mut length = 0;
                while !rest[length..].starts_with(*end) {
                    let unit = rest[length..].chars().next()?;
                    length += if unit == '%' { 3 } else { unit.len_utf8() };
                }
                arguments.push(unescape(&rest[..length])?);
                rest = &rest[length..];
            }
        }
    }
    rest.is_empty().then_some(arguments)
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut pieces = text.split('%');
    bytes.extend(pieces.next()?.bytes());
    for piece in pieces {
        bytes.push(u8::from_str_radix(piece.get(..2)?, 16).ok()?);
        bytes.extend(piece[2..].bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Arguments as somebody would choose them who wants another one's key.
fn argument() -> impl Strategy<Value = String> {
    let odd = select(vec![
        "}", "{", "{}", "a}b", "}{", ":", "::", "%", "%3A", "%7D", "3A", " ", "\0", "\n", "\r\n",
        "\u{85}", "\u{a0}", "\u{2028}", "\u{202e}", "\u{200b}", "\u{feff}", "é", "e\u{301}",
        "日本", "🔒", "tenant", "a", "b", "0", "-", "to", "o", "A", "1", "F", "2D", "%2D", "41",
        "%41", "/", "\u{301}", "C3", "%C3",
    ]);
    let pieces = prop::collection::vec(odd.prop_map(str::to_owned), 0..5);
    prop_oneof![
        6 => pieces.prop_map(|pieces| pieces.concat()),
        3 => any::<String>(),
        1 => (select(vec!["x", "}", "日"]), 0..600usize).prop_map(|(text, times)| text.repeat(times)),
    ]
}

fn call() -> impl Strategy<Value = (Vec<Part>, Vec<String>)> {
    let template = prop_oneof![1 => select(templates()), 1 => any_template()];
    (template, prop::collection::vec(argument(), 4)).prop_map(|(template, mut arguments)| {
        arguments.truncate(values(&template));
        (template, arguments)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_arguments_can_be_read_back_from_the_key((template, arguments) in call()) {
        let length = key_length(&template, &arguments);
        let empty = arguments.iter().any(String::is_empty);
        match build(&template, &arguments) {
            Ok(key) => {
                prop_assert!(!empty, "an empty value in {}", key);
                prop_assert!(key.as_str().len() == length && length <= MAX_KEY, "{}", key);
                prop_assert_eq!(read_back(&template, key.as_str()), Some(arguments), "{}", key);
            }
            Err(error) => {
                prop_assert!(matches!(error, Error::InvalidKey { .. }), "{:?}", &error);
                prop_assert!(empty || length > MAX_KEY, "{}", error);
                let shown = error.to_string();
                prop_assert!(shown.len() < 1_000 && !shown.contains(char::is_control), "{}", shown);
            }
        }
    }

    #[test]
    fn the_hash_tag_is_the_templates((template, arguments) in call()) {
        let Ok(key) = build(&template, &arguments) else { return Ok(()) };
        let ordinary = build(&template, &vec!["x".to_owned(); values(&template)]).unwrap().tagged().to_string();
        let tagged = key.tagged().to_string();
        for brace in ['{', '}'] {
            prop_assert_eq!(tagged.matches(brace).count(), 1, "{}", &tagged);
        }
        // What the template has before, inside and behind its tag is where the arguments are.
        let in_tag = |key: &str| {
            let (before, rest) = key.split_once('{').unwrap();
            let (tag, behind) = rest.split_once('}').unwrap();
            [before, tag, behind].map(str::is_empty)
        };
        prop_assert_eq!(in_tag(&tagged), in_tag(&ordinary), "{}", &tagged);
        prop_assert!(!in_tag(&tagged)[1], "{}", &tagged);
    }
}

#[test]
fn no_two_lists_of_short_arguments_share_a_key() {
    let pieces = ["a", ":", "{", "}", "%", "3A", " ", "-", "0", "F"];
    let mut words: Vec<String> = pieces.map(str::to_owned).to_vec();
    for first in pieces {
        words.extend(pieces.map(|second| format!("{first}{second}")));
    }
    for template in (templates().iter()).filter(|template| values(template) == 2) {
        let mut seen = HashMap::new();
        for arguments in words
            .iter()
            .flat_map(|a| words.iter().map(move |b| [a, b].map(String::clone)))
        {
            let key = build(template, &arguments).unwrap().tagged().to_string();
            // The pieces overlap: "3A" is one word and two.
            if let Some(other) = seen.insert(key.clone(), arguments.clone()) {
                assert_eq!(other, arguments, "{template:?} gives {key} for both");
            }
        }
    }
}

#[test]
fn a_megabyte_is_refused_in_few_words() {
    for argument in
        ["x", "}", "\0", "日", "\u{202e}"].map(|text| text.repeat((1 << 20) / text.len()))
    {
        for arguments in [
            [argument.clone(), "b".into()],
            [argument.clone(), String::new()],
        ] {
            let error = build(&templates()[4], &arguments).unwrap_err();
            let Error::InvalidKey { key, .. } = &error else {
                panic!("{error:?}")
            };
            assert!(
                key.len() < 500 && error.to_string().len() < 1_000,
                "{} bytes",
                error.to_string().len()
            );
        }
    }
}
