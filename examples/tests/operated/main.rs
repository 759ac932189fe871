//! The dashboard and the alerts of `docs/operations`, compared with what a service exports.

#![allow(clippy::unwrap_used)]

mod service;

use std::collections::{BTreeMap, BTreeSet};

use distlock_tests::RedisServer;
use serde_json::Value;

use service::Service;

const DASHBOARD: &str = include_str!("../../../docs/operations/grafana-dashboard.json");
const ALERTS: &str = include_str!("../../../docs/operations/prometheus-alerts.yml");

/// Labels that Prometheus adds to every series, and the label of buckets.
const EXTRA_LABELS: [&str; 3] = ["job", "instance", "le"];

fn dashboard_queries(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(fields) => {
            let own = fields.get("expr").and_then(Value::as_str);
            own.into_iter()
                .chain(fields.values().flat_map(dashboard_queries))
                .collect()
        }
        Value::Array(values) => values.iter().flat_map(dashboard_queries).collect(),
        _ => Vec::new(),
    }
}

fn alert_queries() -> Vec<&'static str> {
    let queries = ALERTS
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "));
    queries.collect()
}

fn metrics(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("distlock_"))
}

/// Returns the labels by which a query groups or selects series.
fn labels(query: &str) -> BTreeSet<&str> {
    let groupings = query
        .split("by (")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let groupings = groupings.flat_map(|names| names.split(','));
    let matchers = query
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next());
    let matchers = matchers.flat_map(|matchers| matchers.split(','));
    let matchers = matchers.filter_map(|matcher| matcher.split(['=', '!']).next());
    groupings.chain(matchers).map(str::trim).collect()
}

/// Returns the labels of each exported metric.
fn exported(text: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut exported = BTreeMap::<_, BTreeSet<_>>::new();
    for series in text.lines().filter(|line| line.starts_with("distlock_")) {
        let metric = metrics(series).next().unwrap();
        exported.entry(metric).or_default().extend(labels(series));
    }
    exported
}

/// Returns the metric without the suffixes of a histogram.
fn family(metric: &str) -> &str {
    let suffixes = ["_bucket", "_sum", "_count"];
    let mut stripped = suffixes
        .iter()
        .filter_map(|suffix| metric.strip_suffix(suffix));
    stripped.next().unwrap_or(metric)
}

#[test]
fn dashboard_and_alerts_use_all_exported_metrics_and_no_others() {
    let server = RedisServer::start();
    let service = Service::start(&server);
    let deleted = server.client().cmd(&["DEL", "operated:lock:{import}"]);
    assert_eq!(deleted.int(), 1);
    server.client().cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let mut text = String::new();
    for (metric, label) in [
        ("distlock_store_reconnects_total", "connection=\"commands\""),
        (
            "distlock_acquire_duration_seconds_count",
            "outcome=\"busy\"",
        ),
        (
            "distlock_hold_duration_seconds_count",
            "outcome=\"max_hold_exceeded\"",
        ),
        // Prometheus sees no increase in a counter that is exported with its first event, and then
        // the first loss is not an alert.
        ("distlock_locks_lost_total", "reason=\"not_renewed\""),
        ("distlock_locks_lost_total", "reason=\"gone\""),
        ("distlock_success_records_total", "outcome=\"recorded\""),
        ("distlock_skipped_total", "reason=\"already_ran\""),
    ] {
        text = service.until_exported(metric, label);
    }

    let exported = exported(&text);
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let queries = [dashboard_queries(&dashboard), alert_queries()].concat();
    assert!(queries.len() > 30, "{queries:?}");
    let mut used = BTreeSet::new();
    for query in queries {
        let mut known: BTreeSet<_> = EXTRA_LABELS.into();
        for metric in metrics(query) {
            let labels = exported.get(metric);
            known.extend(labels.unwrap_or_else(|| panic!("{query}: no {metric}")));
            used.insert(family(metric));
        }
        let unknown: Vec<_> = labels(query).difference(&known).copied().collect();
        assert!(unknown.is_empty(), "{query}: no labels {unknown:?}");
    }
    let families: BTreeSet<_> = exported.keys().map(|metric| family(metric)).collect();
    let unused: Vec<_> = families.difference(&used).collect();
    assert!(unused.is_empty(), "{unused:?} are in no panel and no alert");
}

#[test]
fn a_terminated_service_leaves_no_lock() {
    let server = RedisServer::start();
    let service = Service::start(&server);
    service.terminate();
    let locks = server.client().keys("operated:lock:*");
    assert_eq!(locks, Vec::<String>::new());
}
