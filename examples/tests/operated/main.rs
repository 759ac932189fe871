//! The dashboard and the alerts of `docs/operations`, against what a service really exports.

#![allow(clippy::unwrap_used)]

mod exported;
mod queries;
mod service;

use std::collections::BTreeSet;

use distlock_tests::RedisServer;

use exported::Exported;
use service::Operated;

const DASHBOARD: &str = include_str!("../../../docs/operations/grafana-dashboard.json");
const ALERTS: &str = include_str!("../../../docs/operations/prometheus-alerts.yml");

/// What a scrape adds to every series, and what belongs to histograms.
const BY_PROMETHEUS: [&str; 3] = ["job", "instance", "le"];

/// The queries of all panels, variables and annotations.
fn queries_of_dashboard() -> Vec<String> {
    fn walk(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    match value.as_str() {
                        Some(text) if name == "expr" || text.starts_with("label_values(") => {
                            found.push(text.to_owned());
                        }
                        _ => walk(value, found),
                    }
                }
            }
            serde_json::Value::Array(values) => values.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(&serde_json::from_str(DASHBOARD).unwrap(), &mut found);
    found
}

fn queries_of_alerts() -> Vec<String> {
    let lines = ALERTS.lines();
    let queries = lines.filter_map(|line| line.trim().strip_prefix("expr: "));
    queries.map(str::to_owned).collect()
}

#[test]
fn what_dashboard_and_alerts_ask_for_is_exported() {
    let server = RedisServer::start();
    let service = Operated::start(&server);
    // What happens to a service: somebody deletes a lock, and a connection breaks.
    service.until_said("import begins");
    let deleted = server.client().cmd(&["DEL", "operated:lock:{import}"]);
    assert_eq!(deleted.int(), 1);
    server.client().cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let happened = |exported: &Exported| {
        exported.has("distlock_lost_total", "reason", "gone")
            && exported.has("distlock_store_reconnects_total", "link", "commands")
            && exported.has("distlock_acquire_duration_seconds_count", "outcome", "busy")
            && exported.has(
                "distlock_hold_duration_seconds_count",
                "outcome",
                "hold_limit",
            )
    };
    let exported = service.scrape_until(happened);
    // A counter that begins with what it counts does not rise for Prometheus: the first loss would wake nobody.
    for reason in ["expired", "gone"] {
        assert!(
            exported.has("distlock_lost_total", "reason", reason),
            "{reason}"
        );
    }

    let (dashboard, alerts) = (queries_of_dashboard(), queries_of_alerts());
    assert!(dashboard.len() > 20, "{dashboard:?}");
    assert_eq!(alerts.len(), ALERTS.matches("- alert:").count());
    let mut asked = BTreeSet::new();
    for query in dashboard.iter().chain(&alerts) {
        for selector in queries::selectors(query) {
            let series = exported.labels(&selector.metric);
            let series = series.unwrap_or_else(|| panic!("{query}: no {}", selector.metric));
            for label in &selector.labels {
                let known = series.contains(label) || BY_PROMETHEUS.contains(&label.as_str());
                assert!(known, "{query}: {} has no {label}", selector.metric);
            }
            asked.insert(queries::family(&selector.metric).to_owned());
        }
    }
    // And nothing that is exported goes unseen, but for what is seen by inspections alone.
    let families: BTreeSet<_> = exported.families().collect();
    let unseen: Vec<_> = families.difference(&asked).collect();
    assert!(unseen.is_empty(), "{unseen:?} are in no panel and no alert");
}

#[test]
fn a_service_ends_tidily() {
    let server = RedisServer::start();
    let service = Operated::start(&server);
    service.until_said("import begins");
    assert!(service.terminate().success());
    assert_eq!(
        server.client().keys("operated:lock:*"),
        Vec::<String>::new()
    );
}
