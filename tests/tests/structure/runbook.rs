//! Every line of the log at WARN or ERROR is in the runbook, and every alert names a heading of it.

use distlock_tests::documents::document;
use proc_macro2::{TokenStream, TokenTree};
use syn::LitStr;

use crate::log_lines::{collect_log_lines, log_lines};
use crate::source::product_tokens;

const RUNBOOK: &str = "docs/operations/runbook.md";
const ALERTS: &str = "docs/operations/prometheus-alerts.yml";

/// What separates the constant start of a message from its details.
const DETAILS: [char; 4] = [':', ';', '(', ','];

/// Returns the quotation in the runbook of a message at WARN or ERROR: its level, and its text up
/// to the details.
fn quotation((level, arguments): (String, TokenStream)) -> Option<String> {
    let is_quoted = level == "warn" || level == "error";
    let message = arguments.into_iter().filter_map(string).last();
    let message = message.filter(|_| is_quoted)?;
    let end = message.find(DETAILS).unwrap_or(message.len());
    let level = level.to_uppercase();
    Some(format!("> {level} `{}", message[..end].trim_end()))
}

fn string(token: TokenTree) -> Option<String> {
    let literal: LitStr = syn::parse2(token.into()).ok()?;
    Some(literal.value())
}

/// Returns the anchor that GitHub and mdBook give a heading.
fn anchor(heading: &str) -> String {
    let is_kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    let kept: String = heading.to_lowercase().chars().filter(is_kept).collect();
    kept.replace(' ', "-")
}

#[test]
fn every_warning_and_error_is_in_the_runbook() {
    let lines = log_lines("distlock").into_iter();
    let mut messages: Vec<_> = lines.filter_map(quotation).collect();
    assert!(messages.len() >= 10, "only {} were found", messages.len());
    let runbook = document(RUNBOOK);
    messages.retain(|message| !runbook.contains(message));
    assert_eq!(messages, [""; 0]);
}

#[test]
fn every_alert_names_a_heading_of_the_runbook() {
    let (runbook, alerts) = (document(RUNBOOK), document(ALERTS));
    let headings = runbook.lines().filter_map(|line| line.strip_prefix("## "));
    let anchors: Vec<_> = headings.map(anchor).collect();
    for alert in alerts.split("- alert:").skip(1) {
        let link = alert.split_once("runbook: runbook.md#");
        let link = link.and_then(|(_, link)| link.lines().next());
        let is_there = link.is_some_and(|link| anchors.iter().any(|anchor| anchor == link));
        assert!(
            is_there,
            "the runbook has no heading {link:?} for the alert{alert}"
        );
    }
}

#[test]
fn messages_are_found_as_rustfmt_writes_them() {
    let source = r#"
        fn f() {
            tracing::error!(target: TARGET, by = show("text"), "it broke: \
                see `that`");
            g(|| warn!("beware \
                of it (twice)"));
            tracing::info!("nothing");
        }
        #[cfg(test)]
        mod tests { fn f() { tracing::warn!("in a test") } }
    "#;
    let mut lines = Vec::new();
    collect_log_lines(product_tokens(source), &mut lines);
    let messages: Vec<_> = lines.into_iter().filter_map(quotation).collect();
    assert_eq!(messages, ["> WARN `beware of it", "> ERROR `it broke"]);
}
