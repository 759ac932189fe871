//! Verdicts about facts that are made by hand.

use std::collections::BTreeMap;

use super::*;

const INFO: &[(&str, &str)] = &[
    ("redis_version", "7.0.15"),
    ("maxmemory_policy", "noeviction"),
    ("maxmemory", "0"),
    ("aof_enabled", "1"),
    ("role", "master"),
    ("connected_slaves", "0"),
];

const SETTINGS: &[(&str, &str)] = &[
    ("appendfsync", "always"),
    ("save", ""),
    (
        "client-output-buffer-limit",
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
    ),
];

fn table(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
    let rows = rows.iter();
    rows.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn facts() -> ServerFacts {
    ServerFacts {
        server: "redis://host:6379".into(),
        role: ServerRole::Standalone,
        outage: None,
        info: Ok(table(INFO)),
        settings: Ok(table(SETTINGS)),
        round_trips: vec![Duration::from_micros(100); 20],
        clock: Some((0, Duration::from_micros(50))),
    }
}

/// Returns the severity on one check, with other fields of `INFO`.
fn with(fields: &[(&str, &str)], check: &str) -> Severity {
    let mut facts = facts();
    if let Ok(info) = &mut facts.info {
        info.extend(table(fields));
    }
    severity(&facts, check)
}

fn severity(facts: &ServerFacts, check: &str) -> Severity {
    let diagnostics = of(facts);
    let diagnostic = diagnostics
        .iter()
        .find(|diagnostic| diagnostic.check == check);
    let diagnostic = diagnostic.unwrap_or_else(|| panic!("no {check} in {diagnostics:?}"));
    let is_good = diagnostic.severity == Severity::Ok;
    assert_eq!(diagnostic.help.is_empty(), is_good, "{diagnostic:?}");
    diagnostic.severity
}

#[test]
fn a_server_must_not_be_too_old() {
    for (role, version, is) in [
        (ServerRole::Standalone, "6.0.16", Severity::Error),
        (ServerRole::Standalone, "6.2.0", Severity::Ok),
        (ServerRole::Standalone, "10.0.1", Severity::Ok),
        (ServerRole::Standalone, "nonsense", Severity::Error),
        (ServerRole::Primary, "7.0.15", Severity::Ok),
        (ServerRole::Primary, "6.2.14", Severity::Error),
    ] {
        let mut facts = facts();
        facts.role = role;
        if let Ok(info) = &mut facts.info {
            info.extend(table(&[("redis_version", version)]));
        }
        assert_eq!(severity(&facts, "version"), is, "{version}");
    }
}

#[test]
fn replicas_may_miss_a_lock_at_a_failover() {
    let one = |replica| [("connected_slaves", "1"), ("slave0", replica)];
    for (fields, is) in [
        (&[("role", "slave")][..], Severity::Error),
        (&[], Severity::Ok),
        (&one("ip=h,port=1,state=online,lag=0"), Severity::Warning),
        (&one("ip=h,port=1,state=wait_bgsave"), Severity::Warning),
    ] {
        assert_eq!(with(fields, "replicas"), is, "{fields:?}");
    }
}

#[test]
fn nearly_full_memory_or_client_list_is_reported() {
    for (check, limit, used, enough, too_much) in [
        ("memory", ("maxmemory", "1000"), "used_memory", "899", "900"),
        (
            "clients",
            ("maxclients", "100"),
            "connected_clients",
            "79",
            "80",
        ),
    ] {
        for (used_now, is) in [(enough, Severity::Ok), (too_much, Severity::Warning)] {
            let severity = with(&[limit, (used, used_now)], check);
            assert_eq!(severity, is, "{check}: {used_now}");
        }
    }
}

#[test]
fn clock_skew_and_latency_are_reported() {
    let mut facts = facts();
    for (ahead, uncertain, is) in [
        (900_000, 0, Severity::Ok),
        (-900_000, 0, Severity::Ok),
        (1_100_000, 0, Severity::Warning),
        (-1_100_000, 0, Severity::Warning),
        (1_100_000, 200, Severity::Ok),
    ] {
        facts.clock = Some((ahead, Duration::from_millis(uncertain)));
        assert_eq!(severity(&facts, "clock"), is, "{ahead} {uncertain}");
    }
    facts.round_trips[3] = MAX_ROUND_TRIP * 2;
    assert_eq!(severity(&facts, "latency"), Severity::Warning);
    facts.round_trips = vec![MAX_MEDIAN_ROUND_TRIP * 2; 20];
    assert_eq!(severity(&facts, "latency"), Severity::Warning);
}
