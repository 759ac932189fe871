//! Whatever the arguments are, a key has the hash tag of its template. The test `attribute` shows
//! that a key belongs to one list of arguments only.

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
