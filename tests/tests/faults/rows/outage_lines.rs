//! Four outages, as somebody on call reads them in a log at INFO: each line names the key or the template, the address, and
//! what to do.

use distlock_tests::{RedisServer, Reply};

use crate::rows::told::{BACK, LOST, Service};

const CONNECTED: &str = "connected to the lock store";
const FAILING: &str = "renewals fail and are tried again";
const SLOW: &str = "slow_renewal";
const LOSS: &str = "the lock was lost while it was held";
const RECONNECTED: &str = "a connection to the lock store was lost and is back";

/// What each line of trouble says to do.
const ADVICE: &[(&str, &str)] = &[
    (LOST, "look at the store, and at the way to it"),
    (FAILING, "look at the store, and at the way to it"),
    (SLOW, "or raise the lease"),
    (LOSS, "check what both have written"),
    (RECONNECTED, "look at the server's log"),
];

/// A service that holds three locks of one template.
fn holding() -> Service {
    let mut service = Service::start();
    assert_eq!(service.tell("hold"), "told: holds");
    service
}

/// Lives through an outage: tries until it is told that the store is lost, does something else, and tries until it is back.
fn live_through(
    service: &mut Service,
    begins: impl Fn(&RedisServer),
    meanwhile: impl Fn(&mut Service),
    ends: impl Fn(&RedisServer),
) {
    begins(&service.server);
    while service.count("WARN", LOST) == 0 {
        assert!(service.tell("try").contains("unavailable"));
    }
    meanwhile(service);
    ends(&service.server);
    while service.tell("try") != "told: ok" {}
    while service.count("INFO", BACK) == 0 {
        service.until(|line| line.contains(BACK));
    }
}

/// Has three holds lost, and waits for the lines of that.
fn lose(service: &mut Service) {
    assert_eq!(service.tell("lost"), "told: lost");
    while service.count("ERROR", LOSS) < 3 {
        service.until(|line| line.contains(LOSS));
    }
}

/// Reads the log to its end, and looks at what every outage says.
#[track_caller]
fn read(service: &mut Service) {
    service.tell("end");
    let (lines, address) = (&service.lines, service.address());
    for (words, level) in [(CONNECTED, "INFO"), (LOST, "WARN"), (BACK, "INFO")] {
        assert_eq!(service.count(level, words), 1, "{words}: {lines:#?}");
    }
    let connected = lines.iter().find(|line| line.contains(CONNECTED)).unwrap();
    assert!(connected.contains("namespace=\"distlock\""), "{connected}");
    let lost = lines.iter().find(|line| line.contains(LOST)).unwrap();
    for part in ["held=3", "waiting=", "lock=\"held:<n>\"", "lost_in_ms="] {
        assert!(lost.contains(part), "{part} is not in {lost}");
    }
    let back = lines.iter().find(|line| line.contains(BACK)).unwrap();
    assert!(back.contains("gap_ms="), "{back}");
    let is = |line: &&String, levels: &[&str]| levels.iter().any(|level| line.contains(level));
    for line in lines
        .iter()
        .filter(|line| is(line, &["INFO", "WARN", "ERROR"]))
    {
        assert!(line.contains(&address), "no address: {line}");
    }
    for line in lines.iter().filter(|line| is(line, &["WARN", "ERROR"])) {
        let known = ADVICE.iter().find(|(words, _)| line.contains(words));
        let (words, advice) = known.unwrap_or_else(|| panic!("not documented: {line}"));
        assert!(line.contains(advice), "it does not say what to do: {line}");
        let is_of_lock = *words != RECONNECTED;
        assert!(
            !is_of_lock || line.contains("held:<n>"),
            "which lock: {line}"
        );
    }
    for line in lines.iter().filter(|line| is(line, &["ERROR"])) {
        for part in ["key=held:", "since_proof_ms=", "held_by=\"", "reason=\""] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
}

fn configured(name: &'static str, value: &'static str) -> impl Fn(&RedisServer) {
    move |server: &RedisServer| {
        let reply = server.client().cmd(&["CONFIG", "SET", name, value]);
        assert_eq!(reply, Reply::Status("OK".into()));
    }
}

fn permitted(right: &'static str) -> impl Fn(&RedisServer) {
    move |server: &RedisServer| {
        let reply = server.client().cmd(&["ACL", "SETUSER", "default", right]);
        assert_eq!(reply, Reply::Status("OK".into()));
    }
}

#[test]
fn a_frozen_server() {
    let mut service = holding();
    live_through(
        &mut service,
        RedisServer::stop_process,
        lose,
        RedisServer::cont_process,
    );
    read(&mut service);
    // A lease of three seconds: nothing for the first of them, then a line a second.
    assert!((1..=4).contains(&service.count("WARN", FAILING)));
    for line in service.lines.iter().filter(|line| line.contains(LOSS)) {
        assert!(line.contains("reason=\"expired\""), "{line}");
        assert!(
            line.contains("held_by=\"unknown"),
            "nobody can be asked: {line}"
        );
    }
}

#[test]
fn a_restarted_server() {
    let mut service = holding();
    live_through(
        &mut service,
        RedisServer::kill,
        |_| {},
        RedisServer::restart,
    );
    // It has forgotten them.
    lose(&mut service);
    read(&mut service);
    for line in service.lines.iter().filter(|line| line.contains(LOSS)) {
        assert!(line.contains("reason=\"gone\""), "{line}");
        // The connection for commands may come up after the one for renewals.
        let who = ["held_by=\"nobody", "held_by=\"unknown"];
        assert!(who.iter().any(|who| line.contains(who)), "{line}");
    }
}

#[test]
fn a_full_server() {
    let mut service = holding();
    live_through(
        &mut service,
        configured("maxmemory", "1"),
        |_| {},
        configured("maxmemory", "0"),
    );
    // What is held is renewed also without memory.
    assert_eq!(service.tell("release"), "told: released");
    read(&mut service);
    let lost = service.lines.iter().find(|line| line.contains(LOST));
    assert!(lost.unwrap().contains("raise maxmemory"), "{lost:?}");
    assert_eq!(service.count("ERROR", ""), 0, "{:#?}", service.lines);
}

#[test]
fn a_server_that_forbids() {
    let mut service = holding();
    live_through(
        &mut service,
        permitted("-evalsha"),
        lose,
        permitted("+evalsha"),
    );
    read(&mut service);
    let lost = service.lines.iter().find(|line| line.contains(LOST));
    assert!(
        lost.unwrap().contains("check the user's rights"),
        "{lost:?}"
    );
    assert!(service.count("WARN", FAILING) >= 1, "{:#?}", service.lines);
}
