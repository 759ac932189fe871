//! Who is called at night finds each line of the log in the runbook, and what the alerts point at.

use crate::library::sources_of;
use crate::none;

const RUNBOOK: &str = include_str!("../../../docs/operations/runbook.md");
const ALERTS: &str = include_str!("../../../docs/operations/prometheus-alerts.yml");

/// The beginning of a line of the log at WARN or ERROR, up to where it goes into detail.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    level: &'static str,
    begins: String,
}

/// All lines that a source can write at these levels.
fn lines(source: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    for (name, level) in [("tracing::warn!(", "WARN"), ("tracing::error!(", "ERROR")] {
        for (at, _) in source.match_indices(name) {
            let text = last_text(&source[at + name.len()..]);
            let end = text.find([':', ';', '(', ',']).unwrap_or(text.len());
            let begins = text[..end].trim_end().to_owned();
            lines.push(Line { level, begins });
        }
    }
    lines
}

/// The last text between here and the end of a macro, which is its message.
fn last_text(call: &str) -> String {
    let (mut depth, mut last) = (1, String::new());
    let mut rest = call.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            '"' => {
                let mut text = String::new();
                loop {
                    match rest.next() {
                        Some('\\') if rest.peek() == Some(&'\n') => {
                            while rest.next_if(|c| c.is_whitespace()).is_some() {}
                        }
                        Some('"') | None => break,
                        Some(c) => text.push(c),
                    }
                }
                if depth == 1 {
                    last = text;
                }
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    last
}

fn missing(lines: &[Line], runbook: &str) -> Vec<String> {
    let is_missing = |line: &&Line| {
        let heading = format!("> {} `{}", line.level, line.begins);
        line.begins.is_empty() || !runbook.contains(&heading)
    };
    let missing = lines.iter().filter(is_missing);
    missing.map(|line| format!("{line:?}")).collect()
}

/// What GitHub makes of a heading.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || *c == ' ' || *c == '-';
    let kept: String = heading.to_lowercase().chars().filter(kept).collect();
    kept.replace(' ', "-")
}

#[test]
fn every_warning_and_error_is_in_the_runbook() {
    let sources = sources_of("distlock");
    let lines: Vec<_> = (sources.iter()).flat_map(|(_, text)| lines(text)).collect();
    assert!(lines.len() >= 10, "only {} lines were found", lines.len());
    none(
        &missing(&lines, RUNBOOK),
        "who reads a line of the log finds it in docs/operations/runbook.md, by its first words",
    );
}

#[test]
fn every_alert_points_at_a_heading_of_the_runbook() {
    let headings: Vec<_> = RUNBOOK
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(anchor)
        .collect();
    let pointed: Vec<_> = ALERTS
        .lines()
        .filter_map(|line| line.trim().strip_prefix("runbook: runbook.md#"))
        .collect();
    assert_eq!(pointed.len(), ALERTS.matches("- alert:").count());
    for anchor in pointed {
        assert!(
            headings.iter().any(|heading| heading == anchor),
            "{anchor} is in no heading"
        );
    }
}

#[test]
fn lines_are_found_as_rustfmt_writes_them() {
    let source = r#"
        _ => tracing::error!(
            target: TARGET,
            who = display("a text"),
            "it broke: \
             see `that`"
        ),
        tracing::warn!("beware \
            of it (twice)");
        tracing::info!("nothing");
    "#;
    let line = |level, begins: &str| Line {
        level,
        begins: begins.into(),
    };
    let found = lines(source);
    assert_eq!(
        found,
        [line("WARN", "beware of it"), line("ERROR", "it broke")]
    );
    assert_eq!(
        missing(&found, "> ERROR `it broke`, > WARN `beware"),
        [r#"Line { level: "WARN", begins: "beware of it" }"#]
    );
}
