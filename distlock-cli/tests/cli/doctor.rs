//! `distlock doctor`: its verdicts about servers with a known setup.

use std::collections::BTreeMap;

use distlock_tests::sentinel::Sentinels;
use distlock_tests::{RedisCluster, RedisQuorum, RedisServer, eventually};
use serde_json::Value;

use crate::support::{SOON, distlock, json, output, page, refused, text, user_without};

/// Returns all diagnostics, and the exit code.
#[track_caller]
fn all_diagnostics(url: &str) -> (Vec<Value>, i32) {
    let ended = output(&mut distlock(url, "--json doctor"));
    let object = json(&text(&ended.stdout));
    let code = ended.status.code().expect("a code");
    assert_eq!(object["has_errors"], code == 1, "{object}");
    let diagnostics = object["diagnostics"].as_array();
    (diagnostics.expect("a list").clone(), code)
}

/// Returns the severity and the diagnostic of each check, and the exit code.
#[track_caller]
fn diagnostics(url: &str) -> (BTreeMap<String, (String, String)>, i32) {
    let (diagnostics, code) = all_diagnostics(url);
    let of = |diagnostic: &Value, name: &str| diagnostic[name].as_str().expect("a text").to_owned();
    let by_check = diagnostics.iter().map(|diagnostic| {
        let severity = of(diagnostic, "severity");
        assert_eq!(
            severity == "ok",
            of(diagnostic, "help").is_empty(),
            "{diagnostic}"
        );
        (
            of(diagnostic, "check"),
            (severity, of(diagnostic, "message")),
        )
    });
    (by_check.collect(), code)
}

#[track_caller]
fn severity<'a>(found: &'a BTreeMap<String, (String, String)>, check: &str) -> &'a str {
    let known = found.get(check);
    &known.unwrap_or_else(|| panic!("no {check} in {found:?}")).0
}

#[test]
fn a_server_that_is_set_up_well_is_good() {
    let server = RedisServer::builder().append_only().start();
    let mut client = server.client();
    client.cmd(&["CONFIG", "SET", "appendfsync", "always"]);
    let (found, code) = diagnostics(&server.url());
    assert_eq!(code, 0, "{found:?}");
    // Without the latency, because it depends on the load of this machine.
    let checks = "version eviction clients persistence replicas messages rights clock";
    for check in checks.split(' ') {
        assert_eq!(severity(&found, check), "ok", "{check}: {found:?}");
    }
    assert!(found["locking"].1.contains("handed off"), "{found:?}");
    assert!(found["latency"].1.contains("20 round trips"), "{found:?}");
    let shown = page(&mut distlock(&server.url(), "doctor"));
    assert!(
        shown.contains("ok       eviction") && shown.contains("errors: 0"),
        "{shown}"
    );
}

#[test]
fn each_setting_has_its_severity() {
    let server = RedisServer::start();
    let mut client = server.client();
    let found = diagnostics(&server.url()).0;
    assert_eq!(severity(&found, "persistence"), "warning");
    let shown = format!("{:?}", all_diagnostics(&server.url()).0);
    assert!(shown.contains("success records"), "{shown}");
    for (setting, value, check, expected) in [
        // Nothing is evicted without a limit.
        ("maxmemory-policy", "allkeys-lru", "eviction", "warning"),
        ("maxmemory", "1gb", "eviction", "error"),
        // All locks have a TTL.
        ("maxmemory-policy", "volatile-ttl", "eviction", "error"),
        ("maxmemory-policy", "noeviction", "eviction", "ok"),
        ("appendonly", "yes", "persistence", "warning"),
        ("appendfsync", "always", "persistence", "ok"),
        (
            "client-output-buffer-limit",
            "pubsub 200000 100000 1",
            "messages",
            "warning",
        ),
    ] {
        client.cmd(&["CONFIG", "SET", setting, value]);
        let (found, code) = diagnostics(&server.url());
        let seen = (severity(&found, check), code == 1);
        assert_eq!(seen, (expected, expected == "error"), "{setting} {value}");
    }
    page(&mut distlock(&server.url(), "doctor"));
}

#[test]
fn a_replica_may_be_promoted_without_a_lock() {
    let (server, replica) = (RedisServer::start(), RedisServer::start());
    distlock_tests::sentinel::follow(&replica, &server);
    let mut client = server.client();
    eventually(SOON, || {
        let reply = client.cmd(&["INFO", "replication"]);
        reply
            .text()
            .is_some_and(|reply| reply.contains("state=online"))
    });
    let (found, code) = diagnostics(&server.url());
    assert_eq!(
        (severity(&found, "replicas"), code),
        ("warning", 0),
        "{found:?}"
    );
}

#[test]
fn missing_permissions_are_reported() {
    let server = RedisServer::start();
    let url = user_without(&server, "-config -info");
    let (found, code) = diagnostics(&url);
    assert_eq!(code, 0, "{found:?}");
    for check in ["rights", "version", "eviction", "persistence", "messages"] {
        assert_eq!(severity(&found, check), "warning", "{check}: {found:?}");
    }
    assert!(found["rights"].1.contains("CONFIG GET"), "{found:?}");
    let shown = page(&mut distlock(&url, "doctor"));
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn a_permission_that_locks_need_is_missed() {
    let server = RedisServer::start();
    let (found, code) = diagnostics(&user_without(&server, "-hset"));
    assert_eq!(
        (severity(&found, "locking"), code),
        ("error", 1),
        "{found:?}"
    );
}

#[test]
fn sentinels_begin_a_failover_before_locks_are_lost() {
    let all = Sentinels::start();
    let sentinel = all.sentinels.last().expect("three sentinels");
    let set = |option: &str, value: &str| {
        let words = ["SENTINEL", "SET", Sentinels::SERVICE, option, value];
        assert!(!sentinel.client().cmd(&words).is_error());
    };
    for (option, value, expected, part) in [
        ("quorum", "2", "ok", "quorum 2 of 3 sentinels"),
        (
            "down-after-milliseconds",
            "20000",
            "warning",
            "down-after-milliseconds 20000",
        ),
        (
            "down-after-milliseconds",
            "19999",
            "ok",
            "down-after-milliseconds 19999",
        ),
        ("quorum", "3", "warning", "quorum 3 of 3"),
        ("quorum", "4", "error", "quorum 4 of 3"),
    ] {
        set(option, value);
        // `diagnostics` keeps the last diagnostic of a check, and this sentinel is the last in the URL.
        let (found, code) = diagnostics(&all.url());
        assert_eq!(
            severity(&found, "failover"),
            expected,
            "{option} {value}: {found:?}"
        );
        assert!(found["failover"].1.contains(part), "{found:?}");
        assert_eq!(code == 1, expected == "error");
    }
}

#[test]
fn every_primary_of_a_cluster_is_checked() {
    let cluster = RedisCluster::start(3);
    let (diagnostics, code) = all_diagnostics(&cluster.url());
    assert_eq!(code, 0, "{diagnostics:?}");
    for node in cluster.nodes() {
        let port = node.port().to_string();
        let of_it = |check: &str| {
            let is_it = |diagnostic: &&Value| {
                diagnostic["check"] == check
                    && diagnostic["server"]
                        .as_str()
                        .is_some_and(|server| server.contains(&port))
            };
            let diagnostic = diagnostics.iter().find(is_it);
            let diagnostic =
                diagnostic.unwrap_or_else(|| panic!("no {check} of {port}: {diagnostics:?}"));
            diagnostic["severity"].clone()
        };
        assert_eq!(of_it("coverage"), "ok", "the test server has it so");
        assert_eq!(of_it("messages-when-down"), "ok");
        node.client()
            .cmd(&["CONFIG", "SET", "cluster-require-full-coverage", "yes"]);
    }
    let (found, _) = self::diagnostics(&cluster.url());
    assert_eq!(severity(&found, "coverage"), "warning");
}

#[test]
fn a_server_of_a_quorum_that_is_down_is_bad() {
    let servers = RedisQuorum::start(3);
    servers.vote("distlock");
    let count = |diagnostics: &[Value], check: &str| {
        let of_it = diagnostics
            .iter()
            .filter(|diagnostic| diagnostic["check"] == check);
        of_it.count()
    };
    let (diagnostics, code) = all_diagnostics(&servers.url());
    assert_eq!(
        (code, count(&diagnostics, "version")),
        (0, 3),
        "{diagnostics:?}"
    );
    let locking = diagnostics.iter().find(|found| found["check"] == "locking");
    assert_eq!(locking.expect("a check")["severity"], "ok", "{locking:?}");
    servers.server(1).kill();
    let (diagnostics, code) = all_diagnostics(&servers.url());
    assert_eq!(
        (code, count(&diagnostics, "version")),
        (1, 2),
        "{diagnostics:?}"
    );
    assert_eq!(count(&diagnostics, "connection"), 1, "{diagnostics:?}");
}

#[test]
fn a_store_that_cannot_be_reached_is_an_error() {
    let server = RedisServer::start();
    server.kill();
    // The URL argument is used, not that of the environment.
    let line = format!("--connect-timeout 300ms doctor {}", server.url());
    refused(&mut distlock("memory:", &line), 117, &[]);
}
