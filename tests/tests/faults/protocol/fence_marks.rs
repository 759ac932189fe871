//! The mark of a fence while calls wait, and values of others in our keys.

use distlock_tests::{Reply, Resp};

use super::{Bench, FENCE, HELD, LEASE, LOCK, QUEUED, TTL, WHENEVER, message};

fn fence(raw: &mut Resp) -> String {
    raw.get(FENCE).unwrap_or_default()
}

#[test]
fn whoever_queues_first_marks_the_fence_and_an_empty_queue_is_forgotten() {
    let mut bench = Bench::new();
    let _b = bench.subscriber("b");
    bench.hold("a:1");
    assert!(!fence(&mut bench.raw).ends_with('+'));
    let left = bench.raw.pttl(FENCE);
    bench.ask("b:1");
    assert!(fence(&mut bench.raw).ends_with('+'));
    assert!(bench.raw.pttl(FENCE) > left - 60_000, "it keeps its TTL");
    bench.release("a:1");
    assert_eq!(bench.holder().as_deref(), Some("b:1"));
    assert!(
        fence(&mut bench.raw).ends_with('+'),
        "its entry stands until it confirms"
    );
    bench.confirm("b:1", TTL);
    bench.release("b:1");
    assert_eq!(bench.ask("a:2"), HELD);
    assert!(!fence(&mut bench.raw).ends_with('+'));
}

/// The head takes the lock itself, and others stand behind it.
#[test]
fn the_mark_stays_while_others_wait() {
    let mut bench = Bench::new();
    let _b = bench.subscriber("b");
    bench.hold("a:1");
    bench.ask("b:1");
    bench.ask("b:2");
    bench.expire();
    assert_eq!(bench.ask("b:1"), HELD);
    bench.release("b:1");
    assert_eq!(bench.holder().as_deref(), Some("b:2"));
}

/// It has run out, or somebody removed it: whoever finds none looks at the queue.
#[test]
fn without_a_fence_nobody_is_passed_or_forgotten() {
    let mut bench = Bench::new();
    let _subscribed = [bench.subscriber("b"), bench.subscriber("d")];
    bench.hold("a:1");
    bench.ask("b:1");
    bench.raw.cmd(&["DEL", FENCE]);
    bench.ask("d:1");
    bench.release("a:1");
    assert_eq!(bench.holder().as_deref(), Some("b:1"));
    bench.expire();
    bench.raw.cmd(&["DEL", FENCE]);
    assert_eq!(bench.ask("c:1"), QUEUED);
    assert_eq!(bench.holder().as_deref(), Some("d:1"));
}

/// As long as a token, and below the server's time: it is nobody's token all the same.
#[test]
fn a_foreign_fence_of_sixteen_characters_is_not_overwritten() {
    for theirs in ["1 foreign value!", "----------------"] {
        let mut bench = Bench::new();
        bench.raw.cmd(&["SET", FENCE, theirs]);
        let refused = bench.ask_with("a:1", LEASE, "0", WHENEVER);
        assert!(
            matches!(&refused, Reply::Error(error) if error.contains("FOREIGN ")),
            "{refused:?}"
        );
        assert_eq!(fence(&mut bench.raw), theirs);
        assert_eq!(bench.holder(), None);
    }
}

/// `MGET` is silent about them.
#[test]
fn values_of_other_types_are_neither_taken_nor_removed() {
    for key in [LOCK, FENCE] {
        let mut bench = Bench::new();
        bench.raw.cmd(&["RPUSH", key, "theirs"]);
        for wait in ["0", "60000"] {
            let refused = bench.ask_with("a:1", LEASE, wait, WHENEVER);
            assert!(
                matches!(&refused, Reply::Error(error) if error.contains("WRONGTYPE")),
                "{key}: {refused:?}"
            );
        }
        let _ = bench.try_release("a:1");
        assert_eq!(bench.raw.cmd(&["LLEN", key]).int(), 1, "{key}");
        assert_eq!(bench.raw.keys("t:lock:*").len(), usize::from(key == LOCK));
    }
    // Somebody waits, so the lock is looked at more closely.
    let mut bench = Bench::new();
    let mut b = bench.subscriber("b");
    bench.hold("a:1");
    bench.ask("b:1");
    bench.raw.cmd(&["DEL", LOCK]);
    bench.raw.cmd(&["RPUSH", LOCK, "theirs"]);
    bench.release("a:1");
    assert_eq!(bench.raw.cmd(&["LLEN", LOCK]).int(), 1);
    assert_eq!(message(&mut b), None);
}
