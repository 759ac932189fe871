//! `distlock doctor`: verdicts about servers that are set up so.

use std::collections::BTreeMap;

use distlock_tests::sentinel::Sentinels;
use distlock_tests::{RedisCluster, RedisQuorum, RedisServer, eventually};
use serde_json::Value;

use crate::kit::{SOON, code, distlock, json, output, page, text};

/// The verdict and the finding of each check, and the exit code.
#[track_caller]
fn findings(url: &str) -> (BTreeMap<String, (String, String)>, i32) {
    let ended = output(&mut distlock("memory:", &["--json", "doctor", url]));
    let object = json(&text(&ended.stdout));
    let code = ended.status.code().expect("a code");
    assert_eq!(object["bad"], code == 1, "{object}");
    let findings = object["findings"].as_array().expect("a list");
    let of = |finding: &Value, name: &str| finding[name].as_str().expect("a text").to_owned();
    let by_check = findings.iter().map(|finding| {
        let verdict = of(finding, "verdict");
        assert_eq!(
            verdict == "good",
            of(finding, "advice").is_empty(),
            "{finding}"
        );
        (of(finding, "check"), (verdict, of(finding, "found")))
    });
    (by_check.collect(), code)
}

#[track_caller]
fn verdict<'a>(found: &'a BTreeMap<String, (String, String)>, check: &str) -> &'a str {
    let known = found.get(check);
    &known.unwrap_or_else(|| panic!("no {check} in {found:?}")).0
}

#[test]
fn a_server_that_is_set_up_well_is_good() {
    let server = RedisServer::builder().append_only().start();
    let mut client = server.client();
    client.cmd(&["CONFIG", "SET", "appendfsync", "always"]);
    let (found, code) = findings(&server.url());
    assert_eq!(code, 0, "{found:?}");
    // How fast this machine is at the moment says nothing.
    for check in [
        "version",
        "eviction",
        "clients",
        "persistence",
        "replicas",
        "messages",
        "rights",
        "clock",
    ] {
        assert_eq!(verdict(&found, check), "good", "{check}: {found:?}");
    }
    assert!(found["locking"].1.contains("handed on"), "{found:?}");
    assert!(found["latency"].1.contains("20 round trips"), "{found:?}");
    let shown = page(&mut distlock(&server.url(), &["doctor"]));
    assert!(
        shown.contains("good  eviction") && shown.contains("0 bad"),
        "{shown}"
    );
}

#[test]
fn what_removes_locks_is_bad() {
    let server = RedisServer::start();
    let mut client = server.client();
    client.cmd(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    // Nothing is evicted without a limit.
    let (found, code) = findings(&server.url());
    assert_eq!((verdict(&found, "eviction"), code), ("mind", 0));
    client.cmd(&["CONFIG", "SET", "maxmemory", "1gb"]);
    let (found, code) = findings(&server.url());
    assert_eq!((verdict(&found, "eviction"), code), ("bad", 1));
    // All locks have a TTL.
    client.cmd(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    assert_eq!(verdict(&findings(&server.url()).0, "eviction"), "bad");
    client.cmd(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    assert_eq!(verdict(&findings(&server.url()).0, "eviction"), "good");
    let shown = text(&output(&mut distlock(&server.url(), &["doctor"])).stdout);
    assert!(
        shown.lines().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
}

#[test]
fn what_forgets_or_cuts_off_is_to_be_minded() {
    let server = RedisServer::start();
    let mut client = server.client();
    client.cmd(&[
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "pubsub 200000 100000 1",
    ]);
    let (found, code) = findings(&server.url());
    assert_eq!(code, 0, "{found:?}");
    assert_eq!(verdict(&found, "messages"), "mind");
    assert_eq!(verdict(&found, "persistence"), "mind");
    client.cmd(&["CONFIG", "SET", "appendonly", "yes"]);
    assert_eq!(verdict(&findings(&server.url()).0, "persistence"), "mind");
    client.cmd(&["CONFIG", "SET", "appendfsync", "always"]);
    assert_eq!(verdict(&findings(&server.url()).0, "persistence"), "good");
}

#[test]
fn a_replica_may_be_promoted_without_a_lock() {
    let (server, replica) = (RedisServer::start(), RedisServer::start());
    distlock_tests::sentinel::follow(&replica, &server);
    let mut client = server.client();
    eventually(SOON, || {
        let told = client.cmd(&["INFO", "replication"]);
        told.text()
            .is_some_and(|told| told.contains("state=online"))
    });
    let (found, code) = findings(&server.url());
    assert_eq!(
        (verdict(&found, "replicas"), code),
        ("mind", 0),
        "{found:?}"
    );
}

#[test]
fn who_may_not_ask_is_told_what_could_not_be_asked() {
    let server = RedisServer::start();
    let mut client = server.client();
    let rights = [
        "ACL", "SETUSER", "shop", "on", ">secret", "~*", "&*", "+@all", "-config", "-info",
    ];
    assert!(!client.cmd(&rights).is_error());
    let url = format!("redis://shop:secret@127.0.0.1:{}", server.port());
    let (found, code) = findings(&url);
    assert_eq!(code, 0, "{found:?}");
    for check in ["rights", "version", "eviction", "persistence", "messages"] {
        assert_eq!(verdict(&found, check), "mind", "{check}: {found:?}");
    }
    assert!(found["rights"].1.contains("CONFIG GET"), "{found:?}");
    let shown = page(&mut distlock(&url, &["doctor"]));
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn a_right_that_locks_need_is_missed() {
    let server = RedisServer::start();
    let rights = [
        "ACL", "SETUSER", "shop", "on", ">secret", "~*", "&*", "+@all", "-zadd",
    ];
    assert!(!server.client().cmd(&rights).is_error());
    let url = format!("redis://shop:secret@127.0.0.1:{}", server.port());
    let (found, code) = findings(&url);
    assert_eq!((verdict(&found, "locking"), code), ("bad", 1), "{found:?}");
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
        ("quorum", "2", "good", "quorum 2 of 3 sentinels"),
        (
            "down-after-milliseconds",
            "20000",
            "mind",
            "down-after-milliseconds 20000",
        ),
        (
            "down-after-milliseconds",
            "19999",
            "good",
            "down-after-milliseconds 19999",
        ),
        ("quorum", "3", "mind", "quorum 3 of 3"),
        ("quorum", "4", "bad", "quorum 4 of 3"),
    ] {
        set(option, value);
        // The last of several findings of one check is kept, and this sentinel is the last in the URL.
        let (found, code) = findings(&all.url());
        assert_eq!(
            verdict(&found, "failover"),
            expected,
            "{option} {value}: {found:?}"
        );
        assert!(found["failover"].1.contains(part), "{found:?}");
        assert_eq!(code == 1, expected == "bad");
    }
}

#[test]
fn every_primary_of_a_cluster_is_asked() {
    let cluster = RedisCluster::start(3);
    let ended = output(&mut distlock(&cluster.url(), &["--json", "doctor"]));
    let object = json(&text(&ended.stdout));
    assert_eq!(ended.status.code(), Some(0), "{object}");
    let findings = object["findings"].as_array().expect("a list");
    for node in cluster.nodes() {
        let port = node.port().to_string();
        let of_it = |check: &str| {
            let is_it = |finding: &&Value| {
                finding["check"] == check
                    && finding["server"]
                        .as_str()
                        .is_some_and(|server| server.contains(&port))
            };
            let finding = findings.iter().find(is_it);
            finding.unwrap_or_else(|| panic!("no {check} of {port} in {object}"))["verdict"].clone()
        };
        assert_eq!(of_it("coverage"), "good", "the kit has it so");
        assert_eq!(of_it("messages-when-down"), "good");
        node.client()
            .cmd(&["CONFIG", "SET", "cluster-require-full-coverage", "yes"]);
    }
    let (found, _) = self::findings(&cluster.url());
    assert_eq!(verdict(&found, "coverage"), "mind");
}

#[test]
fn a_server_of_a_quorum_that_is_down_is_bad() {
    let servers = RedisQuorum::start(3);
    servers.vote("distlock");
    let count = |object: &Value, check: &str| {
        let findings = object["findings"].as_array().expect("a list");
        findings
            .iter()
            .filter(|finding| finding["check"] == check)
            .count()
    };
    let ended = output(&mut distlock(&servers.url(), &["--json", "doctor"]));
    let object = json(&text(&ended.stdout));
    assert_eq!(
        (ended.status.code(), count(&object, "version")),
        (Some(0), 3),
        "{object}"
    );
    servers.server(1).kill();
    let ended = output(&mut distlock(&servers.url(), &["--json", "doctor"]));
    let object = json(&text(&ended.stdout));
    assert_eq!(
        (ended.status.code(), count(&object, "version")),
        (Some(1), 2),
        "{object}"
    );
    assert_eq!(count(&object, "connection"), 1, "{object}");
}

#[test]
fn a_store_that_cannot_be_reached_is_no_finding() {
    let server = RedisServer::start();
    server.kill();
    let words = ["--timeout", "300ms", "doctor", &server.url()];
    assert_eq!(code(&mut distlock("memory:", &words)).0, 117);
}
