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

fn facts() -> Facts {
    Facts {
        server: "redis://host:6379".into(),
        part: Part::Whole,
        outage: None,
        info: Ok(table(INFO)),
        settings: Ok(table(SETTINGS)),
        rounds: vec![Duration::from_micros(100); 20],
        clock: Some((0, Duration::from_micros(50))),
    }
}

/// Returns the verdict on one check, with other fields of `INFO`.
fn with(fields: &[(&str, &str)], check: &str) -> Verdict {
    let mut facts = facts();
    if let Ok(info) = &mut facts.info {
        info.extend(table(fields));
    }
    verdict(&facts, check)
}

fn verdict(facts: &Facts, check: &str) -> Verdict {
    let findings = of(facts);
    let finding = findings.iter().find(|finding| finding.check == check);
    let finding = finding.unwrap_or_else(|| panic!("no {check} in {findings:?}"));
    let is_good = finding.verdict == Verdict::Good;
    assert_eq!(finding.advice.is_empty(), is_good, "{finding:?}");
    finding.verdict
}

#[test]
fn a_server_must_not_be_too_old() {
    for (part, version, is) in [
        (Part::Whole, "6.0.16", Verdict::Bad),
        (Part::Whole, "6.2.0", Verdict::Good),
        (Part::Whole, "10.0.1", Verdict::Good),
        (Part::Whole, "nonsense", Verdict::Bad),
        (Part::Primary, "7.0.15", Verdict::Good),
        (Part::Primary, "6.2.14", Verdict::Bad),
    ] {
        let mut facts = facts();
        facts.part = part;
        if let Ok(info) = &mut facts.info {
            info.extend(table(&[("redis_version", version)]));
        }
        assert_eq!(verdict(&facts, "version"), is, "{version}");
    }
}

#[test]
fn replicas_may_miss_a_lock_at_a_failover() {
    let one = |replica| [("connected_slaves", "1"), ("slave0", replica)];
    for (fields, is) in [
        (&[("role", "slave")][..], Verdict::Bad),
        (&[], Verdict::Good),
        (&one("ip=h,port=1,state=online,lag=0"), Verdict::Mind),
        (&one("ip=h,port=1,state=wait_bgsave"), Verdict::Mind),
    ] {
        assert_eq!(with(fields, "replicas"), is, "{fields:?}");
    }
}

#[test]
fn a_memory_or_a_list_of_clients_that_is_nearly_full_is_told() {
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
        for (used_now, is) in [(enough, Verdict::Good), (too_much, Verdict::Mind)] {
            let verdict = with(&[limit, (used, used_now)], check);
            assert_eq!(verdict, is, "{check}: {used_now}");
        }
    }
}

#[test]
fn times_that_differ_and_trips_that_last_are_told() {
    let mut facts = facts();
    for (ahead, uncertain, is) in [
        (900_000, 0, Verdict::Good),
        (-900_000, 0, Verdict::Good),
        (1_100_000, 0, Verdict::Mind),
        (-1_100_000, 0, Verdict::Mind),
        (1_100_000, 200, Verdict::Good),
    ] {
        facts.clock = Some((ahead, Duration::from_millis(uncertain)));
        assert_eq!(verdict(&facts, "clock"), is, "{ahead} {uncertain}");
    }
    facts.rounds[3] = STALLED * 2;
    assert_eq!(verdict(&facts, "latency"), Verdict::Mind);
    facts.rounds = vec![NEAR * 2; 20];
    assert_eq!(verdict(&facts, "latency"), Verdict::Mind);
}
