//! The mark of a fence while calls wait, and foreign values in the keys of distlock.

use super::{Bench, ENTRY, FENCE, HELD, LEASE, LOCK, QUEUE, QUEUED, TTL, WHENEVER, assert_refused};

impl Bench {
    fn fence(&mut self) -> String {
        self.raw.get(FENCE).unwrap_or_default()
    }
}

#[test]
fn the_first_waiter_marks_the_fence_and_an_empty_queue_is_deleted() {
    let mut bench = Bench::queued(&["b"], &[]);
    assert!(!bench.fence().ends_with('+'));
    let left = bench.raw.pttl(FENCE);
    bench.acquire("b:1");
    assert!(bench.fence().ends_with('+'));
    assert!(bench.raw.pttl(FENCE) > left - 60_000, "it keeps its TTL");
    bench.release("a:1");
    bench.assert_served("b:1", &["b:1"]);
    assert!(bench.fence().ends_with('+'), "until it confirms");
    bench.confirm("b:1", TTL);
    bench.release("b:1");
    assert_eq!(bench.acquire("a:2"), HELD);
    assert!(!bench.fence().ends_with('+'));
}

/// The head takes the lock itself, and the mark stays while others wait behind it.
#[test]
fn a_repeated_acquire_of_the_head_takes_the_free_lock() {
    let mut bench = Bench::queued(&["b"], &["b:1", "b:2"]);
    bench.expire();
    assert_eq!(bench.acquire("b:1"), HELD);
    assert_eq!(bench.queue(), ["b:2"]);
    assert_eq!(bench.message("b"), None, "it has its answer");
    bench.release("b:1");
    assert_eq!(bench.holder().as_deref(), Some("b:2"));
}

/// A fence may have expired or been removed. A script that finds none checks the queue.
#[test]
fn without_a_fence_no_waiter_is_skipped_or_lost() {
    let mut bench = Bench::queued(&["b", "d"], &["b:1"]);
    bench.raw.cmd(&["DEL", FENCE]);
    bench.acquire("d:1");
    bench.release("a:1");
    assert_eq!(bench.holder().as_deref(), Some("b:1"));
    bench.expire();
    bench.raw.cmd(&["DEL", FENCE]);
    assert_eq!(bench.acquire("c:1"), QUEUED);
    assert_eq!(bench.holder().as_deref(), Some("d:1"));
}

/// A foreign fence is not overwritten, even if it is as long as a token and below the server's
/// time. Without a token no lock is granted.
#[test]
fn a_foreign_fence_grants_nothing() {
    let mut bench = Bench::queued(&["b"], &["b:1"]);
    bench.raw.cmd(&["SET", FENCE, "theirs"]);
    let refused = bench.try_release("a:1");
    assert!(refused.is_error(), "{refused:?}");
    assert_eq!((bench.holder(), bench.message("b")), (None, None));
    bench.raw.cmd(&["DEL", QUEUE, ENTRY]);
    for theirs in ["theirs", "1 foreign value!", "----------------"] {
        bench.raw.cmd(&["SET", FENCE, theirs]);
        for wait in ["0", "60000"] {
            let refused = bench.acquire_with("c:1", LEASE, wait, WHENEVER);
            assert_refused(&refused, "FOREIGN ");
        }
        assert_eq!(bench.holder(), None, "{theirs}");
        assert_eq!(bench.fence(), theirs);
    }
}

/// `MGET` does not report such values.
#[test]
fn values_of_other_types_are_neither_taken_nor_removed() {
    for key in [LOCK, FENCE] {
        let mut bench = Bench::new(&[]);
        bench.raw.cmd(&["RPUSH", key, "theirs"]);
        for wait in ["0", "60000"] {
            let refused = bench.acquire_with("a:1", LEASE, wait, WHENEVER);
            assert_refused(&refused, "WRONGTYPE");
        }
        let _ = bench.try_release("a:1");
        assert_eq!(bench.raw.cmd(&["LLEN", key]).int(), 1, "{key}");
        let locks = bench.raw.keys("t:lock:*").len();
        assert_eq!(locks, usize::from(key == LOCK), "{key}");
    }
    // With a waiter, the script checks the lock's value.
    let mut bench = Bench::queued(&["b"], &["b:1"]);
    bench.raw.cmd(&["DEL", LOCK]);
    bench.raw.cmd(&["RPUSH", LOCK, "theirs"]);
    bench.release("a:1");
    assert_eq!(bench.raw.cmd(&["LLEN", LOCK]).int(), 1);
    assert_eq!(bench.message("b"), None);
}
