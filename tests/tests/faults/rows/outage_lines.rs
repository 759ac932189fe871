//! Four outages in a log at INFO. Each is logged once at its beginning and once after its end, with
//! the key or the template, the address, and the remedy. Failing renewals are logged at most three
//! times, and each lost lock once.

use distlock_tests::{RedisServer, Reply};

use crate::rows::logged::Service;

const LOST: &str = "lock store unavailable";
const BACK: &str = "lock store available again";
const CONNECTED: &str = "connected to the lock store";
const FAILING: &str = "renewals failed and are being retried";
const SLOW: &str = "slow_renewal";
const LOSS: &str = "lock lost while held";
const RECONNECTED: &str = "reconnected to the lock store";
const LOST_DATA: &str = "lock store lost its data";

/// The remedy in each line about a problem.
const ADVICE: &[(&str, &str)] = &[
    (LOST, "see `detail`"),
    (FAILING, "check the store and the network"),
    (SLOW, "or raise the lease"),
    (LOSS, "; check "),
    (RECONNECTED, "check the server's log"),
    (LOST_DATA, "check what ran twice"),
];

/// Goes through an outage: tries until the store is lost, runs `meanwhile`, and tries until the
/// store is back.
fn live_through(
    begins: impl Fn(&RedisServer),
    meanwhile: impl Fn(&mut Service),
    ends: impl Fn(&RedisServer),
) -> Service {
    let mut service = Service::holding();
    begins(&service.server);
    for tries in 0.. {
        if tries >= 3 && service.count("WARN", LOST) > 0 {
            break;
        }
        assert!(service.command("try").contains("unavailable"));
    }
    meanwhile(&mut service);
    ends(&service.server);
    while service.command("try") != "reply: ok" {}
    while service.count("INFO", BACK) == 0 {
        service.until(|line| line.contains(BACK));
    }
    service
}

/// Waits for the loss of three holds, and for its log lines.
fn lose(service: &mut Service) {
    assert_eq!(service.command("lost"), "reply: lost");
    while service.count("ERROR", LOSS) < 3 {
        service.until(|line| line.contains(LOSS));
    }
}

/// Reads the log to its end, and checks what every outage logs.
#[track_caller]
fn read(service: &mut Service) {
    service.end();
    let (lines, address) = (&service.lines, service.address());
    for (words, level, parts) in [
        (CONNECTED, "INFO", &["namespace=\"distlock\""][..]),
        (
            LOST,
            "WARN",
            &["held=3", "waiting=", "lock=\"held:<n>\"", "lost_in_ms="],
        ),
        (BACK, "INFO", &["downtime_ms="]),
    ] {
        assert_eq!(service.count(level, words), 1, "{words}: {lines:#?}");
        let line = service.of(level, words).next().unwrap();
        for part in parts {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
    for level in ["INFO", "WARN", "ERROR"] {
        for line in service.of(level, "") {
            assert!(line.contains(&address), "no address: {line}");
        }
    }
    for line in service.of("WARN", "").chain(service.of("ERROR", "")) {
        let known = ADVICE.iter().find(|(words, _)| line.contains(words));
        let (words, advice) = known.unwrap_or_else(|| panic!("not documented: {line}"));
        assert!(line.contains(advice), "it does not say what to do: {line}");
        let is_of_lock = ![RECONNECTED, LOST_DATA].contains(words);
        assert!(
            !is_of_lock || line.contains("held:<n>"),
            "which lock: {line}"
        );
    }
    for line in service.of("ERROR", "") {
        for part in [
            "key=\"held:",
            "unconfirmed_ms=",
            "new_holder=\"",
            "reason=\"",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
}

/// Changes the configuration of a server, or the permissions of its users.
fn changed(words: &'static [&'static str]) -> impl Fn(&RedisServer) {
    move |server: &RedisServer| {
        let reply = server.client().cmd(words);
        assert_eq!(reply, Reply::Status("OK".into()), "{words:?}");
    }
}

#[test]
fn a_frozen_server() {
    let mut service = live_through(RedisServer::stop_process, lose, RedisServer::cont_process);
    read(&mut service);
    // With a lease of three seconds: after a second, and in the last third of the lease.
    assert!((1..=3).contains(&service.count("WARN", FAILING)));
    let all = service.of("WARN", FAILING).any(|line| {
        let parts = ["holds=3", "held:<n>", "lost_in_ms="];
        parts.iter().all(|part| line.contains(part))
    });
    assert!(all, "not all three are logged: {:#?}", service.lines);
    assert_eq!(service.count("ERROR", LOSS), 3, "{:#?}", service.lines);
    for n in 0..3 {
        assert_eq!(service.count("ERROR", &format!("key=\"held:{n}\"")), 1);
    }
    for line in service.of("ERROR", LOSS) {
        assert!(line.contains("reason=\"not_renewed\""), "{line}");
        assert!(!line.contains("another holder"), "{line}");
        assert!(
            line.contains("new_holder=\"unknown"),
            "no server can be reached: {line}"
        );
    }
}

#[test]
fn a_restarted_server() {
    let mut service = live_through(RedisServer::kill, |_| {}, RedisServer::restart);
    // The server has lost the holds.
    lose(&mut service);
    read(&mut service);
    assert_eq!(service.count("WARN", LOST_DATA), 1, "{:#?}", service.lines);
    for line in service.of("ERROR", LOSS) {
        assert!(line.contains("reason=\"gone\""), "{line}");
        assert!(line.contains("another holder may have run"), "{line}");
        // The connection for commands may come up after the one for renewals.
        let allowed = ["new_holder=\"none", "new_holder=\"unknown"];
        assert!(allowed.iter().any(|text| line.contains(text)), "{line}");
    }
}

/// Replies without a write prove nothing about a server that rejects writes.
#[test]
fn a_full_server() {
    let mut service = live_through(
        changed(&["CONFIG", "SET", "maxmemory", "1"]),
        |service| assert_eq!(service.command("mix"), "reply: mixed"),
        changed(&["CONFIG", "SET", "maxmemory", "0"]),
    );
    // Holds are renewed without memory, too.
    assert_eq!(service.command("release"), "reply: released");
    read(&mut service);
    let lost = service.of("WARN", LOST).next().unwrap();
    assert!(lost.contains("raise `maxmemory`"), "{lost}");
    assert_eq!(service.count("ERROR", ""), 0, "{:#?}", service.lines);
}

#[test]
fn a_server_that_forbids() {
    let mut service = live_through(
        changed(&["ACL", "SETUSER", "default", "-evalsha"]),
        lose,
        changed(&["ACL", "SETUSER", "default", "+evalsha"]),
    );
    read(&mut service);
    let lost = service.of("WARN", LOST).next().unwrap();
    let advice = ["check the user's permissions", "grant it to the user"];
    assert!(advice.iter().any(|part| lost.contains(part)), "{lost}");
    assert!(service.count("WARN", FAILING) >= 1, "{:#?}", service.lines);
}
