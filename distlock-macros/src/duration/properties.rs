//! Checks that any text is either a duration by the documented grammar, or gives a message.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;

use super::*;
use crate::limits;

/// Parses the documented grammar: whole numbers with units, from large to small, each at most once.
/// Counts in 128 bits, so that only the last step can overflow.
fn reference(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut sum: u128 = 0;
    for (unit, factor) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1_000),
        ("ms", 1u128),
    ] {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, tail) = rest.split_at(digits);
        // The unit ends at the next number, or at the end of the text.
        let Some(tail) = tail.strip_prefix(unit) else {
            continue;
        };
        if number.is_empty() || !(tail.is_empty() || tail.starts_with(|c: char| c.is_ascii_digit()))
        {
            continue;
        }
        let number = number.trim_start_matches('0');
        if number.len() > 30 {
            return None;
        }
        sum += format!("0{number}").parse::<u128>().ok()? * factor;
        rest = tail;
    }
    let whole = rest.is_empty() && !text.is_empty();
    whole.then(|| u64::try_from(sum).ok()).flatten()
}

/// Returns milliseconds in the form that users write.
fn print(millis: u64) -> String {
    let mut left = millis;
    let mut text = String::new();
    for (unit, factor) in UNITS {
        if left >= factor {
            text += &format!("{}{unit}", left / factor);
            left %= factor;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// Generates strings that are nearly durations.
fn soup() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        6 => (0..100u64).prop_map(|number| number.to_string()),
        1 => any::<u64>().prop_map(|number| number.to_string()),
    ];
    let part =
        (number, select(vec!["d", "h", "m", "s", "ms"])).prop_map(|(number, unit)| number + unit);
    let odd = select(vec![
        "",
        "0",
        "000",
        "7",
        "h",
        "m",
        "s",
        "ms",
        "18446744073709551615ms",
        "18446744073709551616ms",
        "5124095576030h",
        "5124095576031h",
        "213503982334d",
        "213503982335d",
        "99999999999999999999999999999999999999999s",
        "000000000000000000000000001s",
        "-",
        "+",
        ".",
        ",",
        "_",
        " ",
        "\0",
        "d",
        "w",
        "us",
        "µs",
        "S",
        "H",
        "e3",
        "٣",
        "²s",
        "½",
        "min",
    ]);
    let pieces = prop_oneof![8 => part, 1 => odd.prop_map(str::to_owned)];
    prop::collection::vec(pieces, 0..5).prop_map(|pieces| pieces.concat())
}

fn agree(text: &str) -> Result<(), TestCaseError> {
    match total(text) {
        Ok(millis) => prop_assert_eq!(Some(millis), reference(text), "{:?} was accepted", text),
        Err(message) => {
            prop_assert_eq!(
                None,
                reference(text),
                "{:?} was refused: {}",
                text,
                &message
            );
            prop_assert!(message.contains(": "), "{:?} only says {:?}", text, message);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_duration_by_the_documentation_or_refused(text in any::<String>()) {
        agree(&text)?;
    }

    #[test]
    fn near_durations_are_judged_as_documented(text in soup()) {
        agree(&text)?;
    }

    #[test]
    fn printed_durations_parse_to_the_same_value(millis in any::<u64>(), shift in 0..64u32) {
        let millis = millis >> shift;
        prop_assert_eq!(total(&print(millis)), Ok(millis));
    }

    #[test]
    fn an_argument_is_within_its_bounds_or_refused(text in soup()) {
        for (argument, range) in [
            (Argument::Lease, limits::LEASE),
            (Argument::Wait, limits::WAIT),
            (Argument::MaxHold, limits::MAX_HOLD),
            (Argument::MinHold, limits::MIN_HOLD),
            (Argument::OncePer, limits::RECORD),
            (Argument::RecordTtl, limits::RECORD),
        ] {
            let is_legal = |millis: &u64| (range.min..=range.max).contains(millis);
            let expected = reference(&text).filter(is_legal);
            prop_assert_eq!(parse(argument, &text, range).ok(), expected, "{} = {:?}", argument, &text);
        }
    }
}

/// The generated strings are useful only if enough of them are accepted.
#[test]
fn both_verdicts_are_common() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let texts = (0..2_000).map(|_| soup().new_tree(&mut runner).unwrap().current());
    let accepted = texts.filter(|text| reference(text).is_some()).count();
    assert!(
        (100..1_900).contains(&accepted),
        "{accepted} of 2000 are durations"
    );
}
