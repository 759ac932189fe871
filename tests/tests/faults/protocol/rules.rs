//! Servers that refuse, limits that are exceeded, and keys that are lost or foreign.

use distlock_tests::fill_queue;

use super::{
    BUSY, Bench, CHECK_QUEUE, DECLARED, ENTRY, FENCE, FENCE_TTL, HELD, LOCK, QUEUE, QUEUED,
    WHENEVER, verdict,
};

impl Bench {
    /// Queues with a TTL of its own.
    #[track_caller]
    fn queue_for(&mut self, owner: &str, ttl: &str) {
        let reply = self.acquire_for(owner, ttl, "60000", WHENEVER, "10");
        assert_eq!(verdict(&reply), QUEUED);
    }

    /// Returns a field of the lock's value.
    #[track_caller]
    fn field(&mut self, number: usize) -> String {
        let value = self.raw.get(LOCK).expect("the lock is taken");
        value.split(' ').nth(number + 1).unwrap().to_owned()
    }

    /// Returns the lock's remaining time, which must be above `least` by at most `most`.
    #[track_caller]
    fn assert_left(&mut self, least: i64, most: i64) -> i64 {
        let left = self.raw.pttl(LOCK);
        assert!(left > least && left <= least + most, "{least}: {left}");
        left
    }

    /// Returns the lock's remaining time as a queue check reports it.
    #[track_caller]
    fn remaining_by_queue_check(&mut self) -> i64 {
        let reply = self.check_queue("zz:1");
        let [now, seen, _] = reply.array() else {
            panic!("{reply:?}");
        };
        let record = seen.array()[5].text().unwrap();
        let expires: i64 = record.split(' ').nth(1).unwrap().parse().unwrap();
        (expires - now.int()) / 1_000
    }
}

/// The holder's proof ends before its key does, whatever the lease. A grant that outlives its TTL,
/// as after a backward step of the clock, is cut to a grant's limit while others wait, not to a lease.
#[test]
fn a_grant_lasts_for_its_short_lease_and_the_grace() {
    for (ttl, granted) in [("610000", 1_000), ("550", 300)] {
        let mut bench = Bench::queued(&["b"], &[]);
        bench.queue_for("b:1", ttl);
        bench.acquire("c:1");
        bench.release("a:1");
        bench.assert_left(granted, 250);
        let message = bench.message("b").expect("b is notified");
        assert!(
            message.ends_with(&format!(" {granted} {LOCK}")),
            "{message}"
        );
        // The owner may set the whole TTL when it confirms.
        assert_eq!(bench.field(2), ttl);
        bench.outlast();
        let reported = bench.remaining_by_queue_check();
        let left = bench.assert_left(granted, 250);
        assert!(
            reported >= left && reported <= granted + 250,
            "{reported} for {left}"
        );
        assert_eq!(bench.confirm("b:1", ttl), HELD);
        assert_eq!(bench.queue(), ["c:1"]);
        let confirmed = ttl.parse::<i64>().unwrap() - 250;
        bench.assert_left(confirmed, 250);
        // After the confirmation its own TTL counts, although the owner is queued again.
        bench.raw.cmd(&["ZADD", QUEUE, "1000000", "b:1"]);
        let entry = format!("9000000000000000 {ttl} mutex 1 1 name");
        bench.raw.cmd(&["HSET", ENTRY, "b:1", &entry]);
        bench.outlast();
        bench.remaining_by_queue_check();
        bench.assert_left(confirmed, 250);
    }
}

/// A PERSIST, a restore without TTLs, or a backward step of the clock may make a lock outlive its
/// TTL. It would not be free for a long time, or ever.
#[test]
fn a_lock_that_outlives_its_ttl_is_shortened_by_the_next_script() {
    for lasts in [&["PERSIST", LOCK][..], &["PEXPIRE", LOCK, "3600000"]] {
        for by_queue_check in [false, true] {
            let mut bench = Bench::new(&[]);
            bench.acquire("a:1");
            bench.raw.cmd(lasts);
            if by_queue_check {
                let reported = bench.remaining_by_queue_check();
                assert!((1..=1_250).contains(&reported), "{lasts:?}: {reported}");
            } else {
                assert_eq!(bench.try_acquire("b:1"), BUSY);
            }
            bench.assert_left(0, 1_250);
        }
    }
}

/// The TTLs of a queue exceed its latest deadline, and a grant made just before it.
#[test]
fn a_queue_outlives_its_longest_wait() {
    let mut bench = Bench::queued(&[], &["b:1"]);
    let outlives = |bench: &mut Bench, wait: i64| {
        let longest = wait + 12_000;
        [QUEUE, ENTRY].into_iter().all(|key| {
            let left = bench.raw.pttl(key);
            left > longest - 7_000 && left <= longest
        })
    };
    // A waiter with a shorter `wait` does not shorten them.
    bench.acquire_with("c:1", "30000", WHENEVER);
    assert!(outlives(&mut bench, 60_000));
    for key in [QUEUE, ENTRY] {
        bench.raw.cmd(&["PEXPIRE", key, "5000"]);
        bench.acquire_with("c:1", "30000", WHENEVER);
        assert!(outlives(&mut bench, 30_000), "{key}");
        bench.acquire("b:1");
    }
}

/// The place of a waiter is the server's time, which may step back.
#[test]
fn a_newcomer_is_queued_behind_a_place_ahead_of_the_clock() {
    let mut bench = Bench::queued(&[], &["b:1"]);
    bench.raw.cmd(&["ZADD", QUEUE, WHENEVER, "b:1"]);
    bench.acquire("a:2");
    assert_eq!(bench.queue(), ["b:1", "a:2"]);
}

#[test]
fn a_foreign_key_does_not_stop_queue_checks_of_others() {
    let mut bench = Bench::new(&[]);
    bench.acquire("a:1");
    bench.raw.cmd(&["HSET", "t:lock:{x}", "a", "1"]);
    let foreign = ["t:lock:{x}", "t:fence:{x}"];
    let args = ["b", FENCE_TTL, "", "1", "b:1", "1", "b:1"];
    let reply = bench.run(CHECK_QUEUE, &[foreign, DECLARED].concat(), &args);
    let [_, foreign, seen, _] = reply.array() else {
        panic!("{reply:?}");
    };
    assert!(foreign.text().unwrap().contains("WRONGTYPE"), "{foreign:?}");
    assert_eq!(seen.array()[4].text(), Some("a:1"));
}

/// Without memory no new state may be written, but writes that end an older state are allowed.
/// Queue checks grant, and remove the entries of silent clients.
#[test]
fn queue_checks_go_on_without_memory() {
    let mut bench = Bench::queued(&["f0", "ee"], &["f0:1"]);
    fill_queue(&mut bench.raw, [QUEUE, ENTRY], "f0", 2, 600);
    fill_queue(&mut bench.raw, [QUEUE, ENTRY], "ee", 1, 1);
    bench.configure("maxmemory", "1");
    bench.expire();
    bench.check_queue("ee:1");
    assert_eq!(bench.holder().as_deref(), Some("f0:1"));
    bench.configure("maxmemory", "0");
    bench.silence("f0");
    bench.configure("maxmemory", "1");
    let mut checks = 0;
    while bench.holder().is_none() {
        bench.check_queue("ee:1");
        checks += 1;
        assert!(checks < 10, "the entries stay");
    }
    assert_eq!(bench.holder().as_deref(), Some("ee:1"));
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

/// Without a token no lock is granted, and a value that is no string is no free lock.
#[test]
fn a_foreign_value_is_not_handed_on() {
    let mut bench = Bench::queued(&["b"], &["b:1"]);
    bench.raw.cmd(&["SET", FENCE, "theirs"]);
    let refused = bench.try_release("a:1");
    assert!(refused.is_error(), "{refused:?}");
    assert_eq!((bench.holder(), bench.message("b")), (None, None));
    assert_eq!(bench.raw.get(FENCE).as_deref(), Some("theirs"));

    let mut bench = Bench::queued(&["b"], &["b:1"]);
    bench.raw.cmd(&["DEL", LOCK]);
    bench.raw.cmd(&["RPUSH", LOCK, "theirs"]);
    assert!(!bench.release("a:1"));
    assert_eq!(bench.raw.cmd(&["LLEN", LOCK]).int(), 1);
    assert_eq!(bench.message("b"), None);
}
