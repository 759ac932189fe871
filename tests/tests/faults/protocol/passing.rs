//! Waiters that are passed over.

use super::{BUSY, Bench, ENTRY, QUEUE, QUEUED};

#[test]
fn an_unconfirmed_grant_purges_its_client_but_not_the_caller() {
    let owners = ["f0:1", "f0:2", "ee:1", "f0:3", "ee:2"];
    let mut bench = Bench::queued(&["f0", "ee"], &owners);
    bench.release("a:1");
    assert_eq!(bench.holder().as_deref(), Some("f0:1"));
    bench.expire();
    let (value, missing) = bench.check_queue("ee:1");
    assert!(value.starts_with("2 ee:1 ") && !missing, "{value}");
    assert_eq!(bench.queue(), ["ee:1", "ee:2"]);
    // If the client itself finds its unconfirmed grant, only the marked entry is removed.
    bench.expire();
    let (value, _) = bench.check_queue("ee:2");
    assert!(value.starts_with("2 ee:2 "), "{value}");
    assert_eq!(bench.queue(), ["ee:2"]);
    let (_, missing) = bench.check_queue("ee:1");
    assert!(missing, "it must acquire again");
}

#[test]
fn a_disconnected_client_is_skipped_even_with_a_pattern_subscriber() {
    let mut bench = Bench::behind_the_dead(2);
    let mut listener = bench.server.client();
    listener.cmd(&["PSUBSCRIBE", "*"]);
    bench.release("a:1");
    bench.assert_served("ee:1", &["ee:1"]);
}

#[test]
fn one_call_removes_a_bounded_number_of_dead_waiters() {
    let mut bench = Bench::behind_the_dead(450);
    bench.release("a:1");
    let mut left = bench.queue().len();
    assert!((351..=352).contains(&left), "{left} left of 451");
    assert_eq!(bench.holder(), None);
    // While dead waiters are removed, a try-acquire is busy and a new caller is queued.
    assert_eq!(bench.try_acquire("b:1"), BUSY);
    assert_eq!(bench.acquire("b:2"), QUEUED);
    assert_eq!(bench.queue().last().map(String::as_str), Some("b:2"));
    let mut calls = 0;
    while bench.holder().is_none() {
        let before = bench.queue().len();
        bench.check_queue("ee:1");
        left = before - bench.queue().len();
        assert!(
            (1..=101).contains(&left),
            "{left} removed by one queue check"
        );
        calls += 1;
        assert!(calls < 10, "it never comes to an end");
    }
    assert_eq!(bench.holder().as_deref(), Some("ee:1"));
}

/// The caller then continues at once, without waiting for the next queue check.
#[test]
fn an_unfinished_release_reports_so() {
    let mut bench = Bench::behind_the_dead(150);
    let more = |bench: &mut Bench| bench.try_release("a:1").int() & 2;
    assert_eq!((more(&mut bench), bench.holder()), (2, None));
    assert_eq!(more(&mut bench), 0);
    assert_eq!(bench.holder().as_deref(), Some("ee:1"));
}

#[test]
fn an_expired_entry_is_not_granted() {
    let mut bench = Bench::queued(&["b", "c"], &["b:1", "c:1"]);
    bench.overdue("b:1");
    bench.release("a:1");
    bench.assert_served("c:1", &["c:1"]);
}

#[test]
fn a_queue_without_one_of_its_keys_accepts_acquires_again() {
    for lost in [QUEUE, ENTRY] {
        let mut bench = Bench::queued(&["b"], &["b:1"]);
        // Evicted, or deleted by hand.
        bench.raw.cmd(&["DEL", lost]);
        assert_eq!(bench.acquire("b:1"), QUEUED);
        assert_eq!(bench.queue(), ["b:1"], "without {lost}");
        bench.release("a:1");
        assert_eq!(bench.holder().as_deref(), Some("b:1"), "without {lost}");
    }
}
