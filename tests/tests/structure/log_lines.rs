//! The fields of log lines: every text is a string, which subscribers quote, and only durations are
//! recorded by `Debug`.

use proc_macro2::{TokenStream, TokenTree};

use crate::files::rust_files;
use crate::source::product_tokens;

/// The fields whose values are durations.
const DURATIONS: [&str; 4] = ["waited", "held", "took", "overdue"];

/// Collects the log lines in some code: the level and the arguments of each.
pub(crate) fn collect_log_lines(tokens: TokenStream, lines: &mut Vec<(String, TokenStream)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for token in &tokens {
        if let TokenTree::Group(group) = token {
            collect_log_lines(group.stream(), lines);
        }
    }
    for window in tokens.windows(3) {
        if let [TokenTree::Ident(level), sign, TokenTree::Group(arguments)] = window
            && sign.to_string() == "!"
            && ["error", "warn", "info", "debug", "trace"].contains(&&*level.to_string())
        {
            lines.push((level.to_string(), arguments.stream()));
        }
    }
}

/// Returns the log lines of a crate.
pub(crate) fn log_lines(package: &str) -> Vec<(String, TokenStream)> {
    let mut lines = Vec::new();
    for (_, text) in rust_files(package) {
        collect_log_lines(product_tokens(&text), &mut lines);
    }
    lines
}

/// Returns the fields in the arguments of a log line whose values are not strings or numbers.
fn unquoted(arguments: TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = arguments.into_iter().collect();
    let fields = tokens.split(|token| token.to_string() == ",");
    let texts = fields.map(|field| field.iter().cloned().collect::<TokenStream>().to_string());
    let is_unquoted = |field: &String| {
        let mut words = field.split([' ', '.', '(']);
        let is_duration = words.any(|word| DURATIONS.contains(&word));
        field.contains('%') || field.contains("display") || field.contains('?') && !is_duration
    };
    // The message is a literal.
    let fields = texts.filter(|field| !field.starts_with('"'));
    fields.filter(is_unquoted).collect()
}

#[test]
fn texts_are_recorded_as_strings() {
    let lines = log_lines("distlock");
    let mut found: Vec<_> = lines.into_iter().flat_map(|(_, it)| unquoted(it)).collect();
    found.sort();
    assert_eq!(found, [""; 0]);
    let line = "store, key = %key, ?waited, %error, ?error, by = by.map(tracing::field::display)";
    let expected = [
        "key = % key",
        "% error",
        "? error",
        "by = by . map (tracing :: field :: display)",
    ];
    assert_eq!(unquoted(line.parse().unwrap()), expected);
}
