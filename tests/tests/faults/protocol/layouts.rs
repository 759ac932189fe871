//! The mark of the fence, and clients of the first layout (`first_layout/`, as their scripts were).

use distlock_tests::{Reply, Resp};

use super::{
    ALL, Bench, CHANNELS, ENTRY, FENCE, FENCE_TTL, HELD, LEASE, LOCK, QUEUE, QUEUED, TTL, WHENEVER,
    message, verdict,
};

const FOREIGN: i64 = 5;

/// A client of the first layout, on the same server and in the same namespace.
struct First<'a>(&'a mut Bench);

impl First<'_> {
    fn run(&mut self, script: &str, keys: &[&str], args: &[&str]) -> Reply {
        let source = script.replace("--@include next", include_str!("first_layout/next.lua"));
        let count = keys.len().to_string();
        let words = [&["EVAL", &source, &count][..], keys, args].concat();
        self.0.raw.cmd(&words)
    }

    fn ask(&mut self, owner: &str) -> Reply {
        let client = owner.split(':').next().unwrap();
        let args = [
            owner, LEASE, TTL, "60000", WHENEVER, client, CHANNELS, "old", "10", FENCE_TTL,
        ];
        self.run(include_str!("first_layout/ask.lua"), &ALL, &args)
    }

    fn release(&mut self, owner: &str) -> Reply {
        let client = owner.split(':').next().unwrap();
        let args = [owner, client, CHANNELS, "0", FENCE_TTL];
        self.run(include_str!("first_layout/release.lua"), &ALL, &args)
    }

    fn confirm(&mut self, owner: &str) -> i64 {
        let keys = [LOCK, QUEUE, ENTRY];
        let script = include_str!("first_layout/confirm.lua");
        self.run(script, &keys, &[owner, TTL]).array()[0].int()
    }

    fn renewed(&mut self, owner_and_token: &str) -> bool {
        let script = include_str!("first_layout/renew.lua");
        let failures = self.run(script, &[LOCK], &[owner_and_token, TTL]);
        failures.array().is_empty()
    }

    fn look(&mut self, owner: &str) -> Reply {
        let client = owner.split(':').next().unwrap();
        let args = [client, CHANNELS, FENCE_TTL, "1", owner];
        let seen = self.run(include_str!("first_layout/look.lua"), &ALL, &args);
        seen.array()[1].clone()
    }
}

#[track_caller]
fn is_foreign(seen: &Reply) -> bool {
    matches!(seen, Reply::Bulk(text) if text.contains("FOREIGN "))
}

fn fence(raw: &mut Resp) -> String {
    raw.get(FENCE).unwrap_or_default()
}

#[test]
fn a_client_of_the_first_layout_finds_ours_foreign_and_leaves_it_alone() {
    let mut bench = Bench::new();
    let _old = bench.subscriber("0d");
    bench.hold("a:1");
    let value = bench.raw.get(LOCK);
    let token = bench.token();
    let mut first = First(&mut bench);
    assert_eq!(verdict(&first.ask("0d:1")), FOREIGN);
    assert!(is_foreign(&first.look("0d:1")));
    assert!(!first.renewed(&format!("a:1 {token}")));
    assert_eq!(first.confirm("a:1"), 0);
    assert_eq!(first.release("a:1").array()[0].int(), 0);
    assert_eq!(bench.raw.get(LOCK), value);
    assert!(bench.raw.pttl(LOCK) > 3_000_000, "nothing was cut down");
}

/// A queue of ours behind a free lock: the first layout's scripts grant nothing, to nobody.
#[test]
fn a_client_of_the_first_layout_drives_no_queue_of_ours() {
    let mut bench = Bench::new();
    let mut b = bench.subscriber("b");
    bench.hold("a:1");
    bench.ask("b:1");
    bench.expire();
    let mut first = First(&mut bench);
    let refused = first.ask("0d:1");
    assert!(
        matches!(&refused, Reply::Error(error) if error.contains("FOREIGN ")),
        "{refused:?}"
    );
    assert!(first.release("0d:1").is_error());
    assert_eq!((bench.holder(), message(&mut b)), (None, None));
    bench.look("b:1");
    assert_eq!(bench.holder().as_deref(), Some("b:1"));
}

#[test]
fn a_lock_of_the_first_layout_is_foreign_to_us() {
    let mut bench = Bench::new();
    let held = First(&mut bench).ask("0d:1");
    let token = held.array()[2].int();
    let value = bench.raw.get(LOCK);
    assert_eq!(bench.ask("a:1"), FOREIGN);
    assert!(!bench.release("0d:1"));
    assert_eq!(bench.confirm("0d:1", TTL), 0);
    assert_eq!(bench.raw.get(LOCK), value);
    assert_eq!(First(&mut bench).release("0d:1").array()[0].int(), 1);
    assert_eq!(bench.ask("a:1"), HELD);
    assert!(
        bench.token() > token.try_into().unwrap(),
        "tokens rise across layouts"
    );
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
