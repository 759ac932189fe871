//! The order of grants, and the state that other commands must not change.

use super::{
    ALL, BUSY, Bench, CHANNELS, CHECK_QUEUE, FENCE, FENCE_TTL, HELD, LATE, LEASE, LOCK, QUEUE,
    QUEUED, RENEW, TTL, WHENEVER, assert_refused, token_of, verdict,
};
use crate::support::leftovers;

#[test]
fn a_newcomer_never_passes_a_queue() {
    let mut bench = Bench::queued(&["b"], &["b:1"]);
    bench.expire();
    assert_eq!(bench.try_acquire("c:1"), BUSY, "a try passed the queue");
    assert_eq!(bench.holder().as_deref(), Some("b:1"));
    let granted = bench
        .message("b")
        .expect("the head of the queue is notified");
    assert!(
        granted.starts_with("b:1 ") && granted.ends_with(&format!(" 1000 {LOCK}")),
        "{granted}"
    );
    bench.expire();
    let next = bench.acquire("c:1");
    assert_eq!(next, HELD, "b did not confirm, and no other client waits");
    assert_eq!(bench.acquire("b:2"), QUEUED);
    bench.expire();
    assert_eq!(bench.acquire("d:1"), QUEUED, "a newcomer passed the queue");
    assert_eq!(bench.holder().as_deref(), Some("b:2"));
}

#[test]
fn a_release_grants_to_the_head_and_notifies_only_its_client() {
    let mut bench = Bench::queued(&["b", "c"], &["b:1", "c:1"]);
    let first = bench.token();
    assert!(bench.release("a:1"));
    let message = bench.message("b").expect("the next waiter is notified");
    assert_eq!(bench.message("c"), None);
    assert!(bench.token() > first);
    assert!(
        message.contains(&format!(" {} ", bench.token())),
        "{message}"
    );
    let left = bench.raw.pttl(LOCK);
    assert!((1..=1_250).contains(&left), "a grant is short: {left}");
}

#[test]
fn a_release_frees_no_other_holders_lock() {
    let mut bench = Bench::queued(&["b"], &["b:1"]);
    for stranger in ["a:2", "a:11", "b:1", "c:1"] {
        assert!(!bench.release(stranger), "{stranger}");
        assert_eq!(bench.holder().as_deref(), Some("a:1"), "{stranger}");
    }
    assert_eq!(bench.queue(), Vec::<String>::new(), "b gave up its place");
    assert_eq!(bench.confirm("a:2", TTL), 0);
    assert!(bench.release("a:1"));
    assert_eq!(bench.holder(), None);
}

#[test]
fn an_acquire_is_idempotent() {
    let mut bench = Bench::new(&["b"]);
    bench.acquire("a:1");
    let token = bench.token();
    bench.raw.cmd(&["PEXPIRE", LOCK, "200"]);
    let again = bench.acquire_with("a:1", LEASE, "0", WHENEVER);
    assert_eq!((verdict(&again), token_of(&again)), (HELD, token));
    let left = bench.raw.pttl(LOCK);
    assert!(left > 1_000, "a repeated acquire holds for the whole lease");
    for _ in 0..3 {
        assert_eq!(bench.acquire("b:1"), QUEUED);
    }
    assert_eq!(bench.queue(), ["b:1"]);
    bench.release("a:1");
    let granted = bench.token();
    let again = bench.acquire_with("b:1", LEASE, "60000", WHENEVER);
    assert_eq!((verdict(&again), token_of(&again)), (HELD, granted));
    assert_eq!(bench.queue(), Vec::<String>::new(), "the mark is gone");
}

#[test]
fn a_late_acquire_changes_nothing() {
    let mut bench = Bench::new(&[]);
    let late = |bench: &mut Bench| bench.acquire_with("a:1", LEASE, "60000", "1000000");
    let reply = late(&mut bench);
    assert_eq!(verdict(&reply), LATE);
    let now = reply.array()[1].int();
    assert!(now > 1_000_000, "the reply contains the time: {now}");
    assert_eq!(bench.raw.keys("*"), Vec::<String>::new());
    bench.acquire("b:1");
    assert_eq!(verdict(&late(&mut bench)), LATE);
    assert_eq!(bench.queue(), Vec::<String>::new());
}

#[test]
fn tokens_and_places_rise_despite_clock_steps() {
    let mut bench = Bench::new(&["b"]);
    let future = bench.hour_ahead();
    bench.raw.cmd(&["SET", FENCE, &future.to_string()]);
    assert_eq!(bench.acquire("a:1"), HELD);
    assert_eq!(bench.token(), future + 1);
    let left = bench.raw.pttl(FENCE);
    assert!(left > 3_600_000, "kept for as long as it is ahead: {left}");
    bench.acquire("b:1");
    bench.raw.cmd(&["ZADD", QUEUE, &future.to_string(), "b:1"]);
    bench.acquire("c:1");
    assert_eq!(bench.queue(), ["b:1", "c:1"], "the later one is behind");
    bench.release("a:1");
    assert_eq!(bench.holder().as_deref(), Some("b:1"));
    assert_eq!(bench.token(), future + 2);
}

#[test]
fn a_refusing_server_publishes_nothing() {
    for by_queue_check in [false, true] {
        let mut bench = Bench::queued(&["b"], &["b:1"]);
        if by_queue_check {
            bench.expire();
        }
        bench.configure("min-replicas-to-write", "1");
        if by_queue_check {
            let args = ["b", CHANNELS, FENCE_TTL, "1", "b:1"];
            bench.run(CHECK_QUEUE, &ALL, &args);
            bench.acquire_limited("c:1", "10");
        } else {
            assert_refused(&bench.try_release("a:1"), "NOREPLICAS");
        }
        let message = bench.message("b");
        assert_eq!(message, None, "published before it was written");
        bench.configure("min-replicas-to-write", "0");
        bench.release("a:1");
        assert_eq!(bench.holder().as_deref(), Some("b:1"));
        assert!(bench.message("b").is_some());
    }
}

#[test]
fn a_renewal_never_makes_a_lock() {
    let mut bench = Bench::new(&[]);
    bench.acquire("a:1");
    let token = bench.token().to_string();
    let mine = format!("a:1 {token}");
    let renew = |bench: &mut Bench, owner: &str| bench.run(RENEW, &[LOCK], &[owner, "60000"]);
    assert_eq!(renew(&mut bench, &mine).array().len(), 0);
    assert!(bench.raw.pttl(LOCK) > 50_000);
    for other in ["a:1 1", &format!("a:2 {token}"), "b:1 1"] {
        let failures = renew(&mut bench, other);
        assert_eq!(failures.array().len(), 1, "{other} is not the holder");
    }
    bench.expire();
    assert_eq!(renew(&mut bench, &mine).array().len(), 1);
    assert_eq!(leftovers(&mut bench.raw), Vec::<String>::new());
}

#[test]
fn a_foreign_value_is_never_touched() {
    let mut bench = Bench::new(&[]);
    bench.raw.cmd(&["SET", LOCK, "theirs"]);
    assert_eq!(bench.acquire("a:1"), 5);
    bench.release("a:1");
    assert_eq!(bench.confirm("a:1", TTL), 0);
    assert_eq!(bench.run(RENEW, &[LOCK], &["a:1 1", TTL]).array().len(), 1);
    assert_eq!(bench.raw.get(LOCK).as_deref(), Some("theirs"));
    assert_eq!(bench.raw.pttl(LOCK), -1);
}

/// `min_hold` keeps a key after its release. Commands sent before the release must not touch it.
#[test]
fn a_late_confirmation_or_renewal_leaves_what_min_hold_keeps() {
    let mut bench = Bench::new(&[]);
    bench.acquire("a:1");
    let value = bench.raw.get(LOCK).unwrap();
    let fields: Vec<_> = value.split(' ').collect();
    let mine = fields[1..3].join(" ");
    bench.release_keeping("a:1", "600000");
    assert_eq!(bench.confirm("a:1", TTL), 0);
    assert_eq!(bench.run(RENEW, &[LOCK], &[&mine, TTL]).array().len(), 1);
    assert!(bench.raw.pttl(LOCK) > 500_000);
}
