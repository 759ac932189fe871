//! Two lists of arguments never share a key, whatever text separates the values. No value moves a
//! key to another slot, because the braces of a key are those of its template.

use std::future::Future;
use std::pin::Pin;

use distlock::Error;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;

use crate::seen::on_a_store_of_its_own;

type Call<'a> = Pin<Box<dyn Future<Output = Result<String, Error>> + 'a>>;

/// A template with the function that it annotates; the function returns its key.
struct Case {
    /// The texts before, between and behind the two values.
    texts: [&'static str; 3],
    call: for<'a> fn(&'a str, &'a str) -> Call<'a>,
}

macro_rules! cases {
    ($($before:literal, $between:literal, $behind:literal => $name:ident $template:literal;)*) => {
        $(
            #[distlock::distributed_lock(key = $template)]
            async fn $name(a: &str, b: &str) -> Result<String, Error> {
                let _ = (a, b);
                Ok(distlock::current().key().to_owned())
            }
        )*

        const CASES: &[Case] = &[
            $(Case { texts: [$before, $between, $behind], call: |a, b| Box::pin($name(a, b)) },)*
        ];
    };
}

cases! {
    "", ":", "" => colon "<a>:<b>";
    "move-", "-", "" => hyphen "move-<a>-<b>";
    "", "to", "" => word "<a>to<b>";
    "", "A1", "" => hex "<a>A1<b>";
    "", "0", "0" => zero "<a>0<b>0";
    "", "2D", "" => escape_of_the_hyphen "<a>2D<b>";
    "%", "F", "%" => letter "%<a>F<b>%";
    "", "é", "" => two_bytes "<a>é<b>";
    "", "日本", "" => three_bytes "<a>日本<b>";
    "", "/%", "" => percent_later "<a>/%<b>";
    "", "<", ">" => angle "<a><<<b>>>";
    "{", "}3", "" => tag "{<a>}3<b>";
    "", " ", "" => space "<a> <b>";
}

fn key(case: &Case, [a, b]: &[String; 2]) -> String {
    on_a_store_of_its_own((case.call)(a, b)).expect("a legal key")
}

/// Returns the arguments from which a key was made. An escape is one unit: the hexadecimal digits
/// in it end no value.
fn read_back(case: &Case, key: &str) -> Option<[String; 2]> {
    let [before, between, behind] = case.texts;
    let rest = key.strip_prefix(before)?.strip_suffix(behind)?;
    let end = between.chars().next()?;
    let mut at = 0;
    while !rest[at..].starts_with(end) {
        let unit = rest[at..].chars().next()?;
        at += if unit == '%' { 3 } else { unit.len_utf8() };
    }
    let (a, rest) = rest.split_at(at);
    Some([unescaped(a)?, unescaped(rest.strip_prefix(between)?)?])
}

fn braces(text: &str) -> String {
    text.matches(['{', '}']).collect()
}

fn unescaped(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(piece.get(..2)?, 16).ok()?);
        bytes.extend(piece[2..].bytes());
    }
    String::from_utf8(bytes).ok()
}

#[test]
fn the_arguments_can_be_read_back_from_the_key() {
    // The characters of the texts above, and texts that imitate their escapes.
    let piece = select(vec![
        "-", ":", "to", "t", "o", "A", "1", "0", "2", "D", "F", "3", "é", "\u{301}", "e", "日",
        "本", "A1", "日本", "/%", "/", "%", "%2D", "%25", "2D", "%C3", "<", ">", "{", "}", " ",
        "x", "🔒",
    ]);
    let piece = prop_oneof![
        9 => piece.prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    let word = prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat());
    let list = [word.clone(), word];
    for case in CASES {
        // A runner counts its runs, so every case has its own.
        let mut runner = TestRunner::new(ProptestConfig {
            cases: 200,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let outcome = runner.run(&list, |list| {
            let key = key(case, &list);
            prop_assert_eq!(read_back(case, &key), Some(list), "{}", key);
            prop_assert_eq!(braces(&key), braces(&case.texts.concat()), "{}", key);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{:?}: {error}", case.texts));
    }
}
