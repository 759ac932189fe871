//! Durations as users write them: `"15s"`, `"500ms"`, `"1m30s"`, or an expression.

use syn::{Expr, ExprLit, ExprUnary, Lit, UnOp};

use crate::limits::Range;
use crate::names::Argument;
use crate::value::{string_literal, without_groups};

/// The units from the largest to the smallest, in milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// The duration of an argument.
pub(crate) enum Time {
    /// A literal, in milliseconds.
    Millis(u64),
    /// An expression of type `Duration`, which is checked when the function is called.
    Expr(Expr),
}

impl Time {
    pub(crate) fn read(argument: Argument, range: Range, value: Expr) -> syn::Result<Time> {
        if let Some(text) = string_literal(&value) {
            return parse(argument, &text.value(), range)
                .map(Time::Millis)
                .map_err(|message| syn::Error::new(text.span(), message));
        }
        let example = argument.example();
        let message = match without_groups(&value) {
            Expr::Lit(ExprLit {
                lit: Lit::Int(number),
                ..
            }) if total(&number.to_string()).is_ok() => {
                format!("`{argument}` is a text in quotes: write `{argument} = \"{number}\"`")
            }
            Expr::Lit(ExprLit {
                lit: Lit::Int(number),
                ..
            }) => format!(
                "`{argument}` needs a unit: write `{argument} = \"{}s\"` for seconds",
                number.base10_digits()
            ),
            Expr::Unary(ExprUnary {
                op: UnOp::Neg(_), ..
            }) => format!("`{argument}` cannot be negative: write `{example}`"),
            Expr::Lit(_) => format!(
                "`{argument}` is a duration: write `{example}`, or an expression of type `Duration`, such as \
                 `{argument} = self.{argument}`"
            ),
            _ => return Ok(Time::Expr(value)),
        };
        Err(syn::Error::new_spanned(value, message))
    }

    pub(crate) fn millis(&self) -> Option<u64> {
        match self {
            Time::Millis(millis) => Some(*millis),
            Time::Expr(_) => None,
        }
    }

    pub(crate) fn expr(&self) -> Option<&Expr> {
        match self {
            Time::Millis(_) => None,
            Time::Expr(expr) => Some(expr),
        }
    }
}

/// Returns the milliseconds in `text`, or the text of an error with a remedy.
fn parse(argument: Argument, text: &str, range: Range) -> Result<u64, String> {
    let millis = total(text)?;
    if millis < range.min {
        return Err(match (argument, millis) {
            (Argument::Lease, 0) => {
                "a `lease` of zero is lost before it is held: write the time after \
                             which a crashed holder frees the key, such as \"30s\""
                    .into()
            }
            (Argument::Lease, _) => format!(
                "a `lease` of {text:?} is too short to be renewed in time: write at least \"50ms\""
            ),
            (Argument::MaxHold, _) => {
                "`max_hold` of zero leaves the body no time: leave the argument \
                                out to have no limit"
                    .into()
            }
            (Argument::OncePer | Argument::RecordTtl, _) => {
                format!("`{argument}` of {text:?} is too short: write at least \"1s\"")
            }
            _ => format!("`{argument}` of zero does nothing: leave the argument out"),
        });
    }
    if millis > range.max {
        return Err(match argument {
            Argument::Lease => format!(
                "a `lease` of {text:?} is too long: a crashed holder would block the key for that \
                 long; write at most \"24h\" (the lease is renewed for as long as the body runs)"
            ),
            Argument::OncePer | Argument::RecordTtl => {
                format!("`{argument}` is at most 366 days: write \"366d\" or less")
            }
            _ => format!("`{argument}` is at most one day: write \"24h\" or less"),
        });
    }
    Ok(millis)
}

fn total(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Err("the duration is empty: write a number with a unit, such as \"15s\"".into());
    }
    if text.starts_with('-') {
        return Err(format!(
            "{text:?} is negative: a duration starts with a number, such as \"15s\""
        ));
    }
    if text.contains(char::is_whitespace) {
        let meant = suggestion(text).map_or_else(
            || "a number with a unit, such as \"15s\"".into(),
            |meant| format!("{meant:?}"),
        );
        return Err(format!("a duration has no spaces: write {meant}"));
    }
    let mut rest = text;
    let mut millis: u64 = 0;
    // The units still permitted, because units are ordered from large to small.
    let mut units = &UNITS[..];
    while !rest.is_empty() {
        let number = leading(&mut rest, |c| c.is_ascii_digit());
        let unit = leading(&mut rest, |c| !c.is_ascii_digit());
        if number.is_empty() {
            return Err(format!(
                "{text:?} is not a duration: a number comes before each unit, such as \"1m30s\""
            ));
        }
        if unit.starts_with(['.', ',']) {
            return Err(format!(
                "{text:?} has a fraction: write whole numbers, such as \"1500ms\" or \"1m30s\""
            ));
        }
        if unit.is_empty() {
            return Err(format!(
                "{text:?} ends without a unit: write \"{text}s\" for seconds; the units \
                 are d, h, m, s and ms"
            ));
        }
        let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(unknown_unit(text, unit));
        };
        let Some(at) = units.iter().position(|(name, _)| *name == unit) else {
            return Err(format!(
                "{text:?} is out of order: units go from large to small, each at most once, \
                 such as \"1h30m\""
            ));
        };
        units = &units[at + 1..];
        millis = number
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(*factor))
            .and_then(|part| millis.checked_add(part))
            .ok_or_else(|| {
                format!("{text:?} is more milliseconds than a u64 can hold: write a shorter time")
            })?;
    }
    Ok(millis)
}

fn unknown_unit(text: &str, unit: &str) -> String {
    let remedy = match unit {
        "us" | "µs" | "ns" => "the smallest unit is the millisecond; ".into(),
        _ => suggestion(text).map_or(String::new(), |text| format!("write {text:?}; ")),
    };
    format!("unknown unit `{unit}`: {remedy}the units are d, h, m, s and ms")
}

/// Returns the intended duration if only spaces, long units or capitals are wrong.
fn suggestion(text: &str) -> Option<String> {
    let text = text.to_lowercase().replace(" and ", " ").replace(',', " ");
    let mut rest = text.trim();
    let mut meant = String::new();
    while !rest.is_empty() {
        let number = leading(&mut rest, |c| c.is_ascii_digit())
            .parse::<u64>()
            .ok()?;
        rest = rest.trim_start();
        let unit = match leading(&mut rest, char::is_alphabetic) {
            "d" | "day" | "days" => "d",
            "h" | "hr" | "hrs" | "hour" | "hours" => "h",
            "m" | "min" | "mins" | "minute" | "minutes" => "m",
            "s" | "sec" | "secs" | "second" | "seconds" => "s",
            "ms" | "msec" | "msecs" | "milli" | "millis" | "millisecond" | "milliseconds" => "ms",
            _ => return None,
        };
        rest = rest.trim_start();
        meant.push_str(&format!("{number}{unit}"));
    }
    total(&meant).is_ok().then_some(meant)
}

/// Splits off the leading characters for which `is_part` is true.
fn leading<'a>(rest: &mut &'a str, is_part: impl Fn(char) -> bool) -> &'a str {
    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    let (taken, remaining) = rest.split_at(end);
    *rest = remaining;
    taken
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        total(text).unwrap_err()
    }

    #[test]
    fn each_error_has_its_own_message() {
        let cases = [
            ("", "is empty"),
            ("-5s", "is negative"),
            ("15 s", "write \"15s\""),
            ("15", "write \"15s\" for seconds"),
            ("1m30", "write \"1m30s\""),
            ("1.5s", "has a fraction"),
            ("10us", "smallest unit is the millisecond"),
            ("soon enough", "a number with a unit"),
            ("1 5 seconds", "a number with a unit"),
            ("15parsecs 3s", "a number with a unit"),
            ("15parsec", "unknown unit `parsec`"),
            ("soon", "a number comes before"),
            ("30s1m", "out of order"),
            ("1s1s", "out of order"),
            ("99999999999999999h", "more milliseconds"),
            ("99999999999999999999s", "more milliseconds"),
        ];
        for (text, expected) in cases {
            let message = message(text);
            assert!(message.contains(expected), "{text:?}: {message}");
        }
    }

    #[test]
    fn a_duration_in_words_is_rejected_with_its_short_form() {
        for (meant, spellings) in [
            (
                "15s",
                &[
                    "15 seconds",
                    "15 second",
                    "15 secs",
                    "15sec",
                    "15 s",
                    "15S",
                    " 15s",
                    "15 Seconds",
                ][..],
            ),
            (
                "500ms",
                &[
                    "500 ms",
                    "500 millis",
                    "500milliseconds",
                    "500 msec",
                    "500MS",
                ],
            ),
            ("5m", &["5 minutes", "5min", "5 mins", "5 m", "5M"]),
            ("2h", &["2 hours", "2hr", "2 hrs", "2 H"]),
            ("1d", &["1 day", "1D"]),
            ("2d", &["2 days", "2 d"]),
            ("1d12h", &["1 day 12 hours"]),
            (
                "1m30s",
                &[
                    "1m 30s",
                    "1 minute 30 seconds",
                    "1 min, 30 sec",
                    "1 minute and 30 seconds",
                ],
            ),
        ] {
            for text in spellings {
                let message = message(text);
                let expected = format!("write {meant:?}");
                assert!(message.contains(&expected), "{text:?}: {message}");
            }
        }
    }
}
