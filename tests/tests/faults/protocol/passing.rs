//! Who is passed over, and what is cut down.

use super::{BUSY, Bench, ENTRY, LOCK, QUEUE, QUEUED};

#[test]
fn an_unconfirmed_grant_purges_its_client_but_not_the_caller() {
    let mut bench = Bench::new();
    let _subscribed = [bench.subscriber("f0"), bench.subscriber("ee")];
    bench.hold("a:1");
    for owner in ["f0:1", "f0:2", "ee:1", "f0:3", "ee:2"] {
        bench.ask(owner);
    }
    bench.release("a:1");
    assert_eq!(bench.holder().as_deref(), Some("f0:1"));
    bench.expire();
    let (value, missing) = bench.look("ee:1");
    assert!(value.starts_with("2 ee:1 ") && !missing, "{value}");
    assert_eq!(bench.queue(), ["ee:1", "ee:2"]);
    // The same, found by its own client: only the marked one is gone.
    bench.expire();
    let (value, _) = bench.look("ee:2");
    assert!(value.starts_with("2 ee:2 "), "{value}");
    assert_eq!(bench.queue(), ["ee:2"]);
    let (_, missing) = bench.look("ee:1");
    assert!(missing, "it must ask again");
}

#[test]
fn a_client_that_left_is_passed_over_even_if_somebody_listens_to_everything() {
    let mut bench = Bench::new();
    let _live = bench.subscriber("ee");
    let mut listener = bench.server.client();
    listener.cmd(&["PSUBSCRIBE", "*"]);
    bench.hold("a:1");
    for owner in ["dd:1", "dd:2", "ee:1"] {
        bench.ask(owner);
    }
    bench.release("a:1");
    assert_eq!(bench.holder().as_deref(), Some("ee:1"));
    assert_eq!(bench.queue(), ["ee:1"]);
}

#[test]
fn one_call_removes_a_bounded_number_of_the_dead() {
    let mut bench = Bench::new();
    let _live = bench.subscriber("ee");
    bench.hold("a:1");
    for i in 0..250 {
        bench.ask(&format!("dd:{i}"));
    }
    bench.ask("ee:1");
    bench.release("a:1");
    let mut left = bench.queue().len();
    assert!((151..=152).contains(&left), "{left} left of 251");
    let mut calls = 0;
    while bench.holder().is_none() {
        bench.look("ee:1");
        let now = bench.queue().len();
        assert!(
            (1..=101).contains(&(left - now)),
            "{} removed by one look",
            left - now
        );
        left = now;
        calls += 1;
        assert!(calls < 10, "it never comes to an end");
    }
    assert_eq!(bench.holder().as_deref(), Some("ee:1"));
}

#[test]
fn while_the_dead_are_removed_a_try_is_busy_and_a_newcomer_queues() {
    let mut bench = Bench::new();
    let _live = bench.subscriber("ee");
    bench.hold("a:1");
    for i in 0..350 {
        bench.ask(&format!("dd:{i}"));
    }
    bench.ask("ee:1");
    bench.release("a:1");
    assert_eq!(bench.holder(), None);
    assert_eq!(bench.try_ask("b:1"), BUSY);
    assert_eq!(bench.ask("b:2"), QUEUED);
    assert_eq!(bench.queue().last().map(String::as_str), Some("b:2"));
}

#[test]
fn an_entry_whose_deadline_has_passed_is_not_served() {
    let mut bench = Bench::new();
    let _subscribed = [bench.subscriber("b"), bench.subscriber("c")];
    bench.hold("a:1");
    bench.ask("b:1");
    bench.ask("c:1");
    bench
        .raw
        .cmd(&["HSET", ENTRY, "b:1", "1000000 1000 1250 name"]);
    bench.release("a:1");
    assert_eq!(bench.holder().as_deref(), Some("c:1"));
    assert_eq!(bench.queue(), ["c:1"]);
}

#[test]
fn a_lock_that_outlives_its_ttl_is_cut_down() {
    let mut bench = Bench::new();
    let _b = bench.subscriber("b");
    bench.ask("a:1");
    // As after a backward step of the clock.
    bench.raw.cmd(&["PEXPIRE", LOCK, "3600000"]);
    assert_eq!(bench.try_ask("b:1"), BUSY);
    assert!(bench.raw.pttl(LOCK) <= 1_250, "a try cuts it");
    bench.ask("b:1");
    bench.raw.cmd(&["PERSIST", LOCK]);
    bench.look("b:1");
    assert!(
        (1..=1_250).contains(&bench.raw.pttl(LOCK)),
        "a look cuts it"
    );
    bench.release("a:1");
    bench.raw.cmd(&["PEXPIRE", LOCK, "3600000"]);
    bench.look("c:1");
    assert!(bench.raw.pttl(LOCK) <= 1_250, "a short grant too");
}

#[test]
fn a_queue_that_lost_one_of_its_keys_takes_asks_again() {
    for lost in [QUEUE, ENTRY] {
        let mut bench = Bench::new();
        let _b = bench.subscriber("b");
        bench.hold("a:1");
        bench.ask("b:1");
        // Evicted, or deleted by hand.
        bench.raw.cmd(&["DEL", lost]);
        assert_eq!(bench.ask("b:1"), QUEUED);
        assert_eq!(bench.queue(), ["b:1"], "without {lost}");
        bench.release("a:1");
        assert_eq!(bench.holder().as_deref(), Some("b:1"), "without {lost}");
    }
}
