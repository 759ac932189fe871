//! The purpose of single lines of the scripts.

use super::{
    ALL, BUSY, Bench, CHANNELS, CHECK_QUEUE, ENTRY, FENCE, FENCE_TTL, HELD, INSPECT, LEASE, LOCK,
    QUEUE, QUEUED, TTL, WHENEVER, verdict,
};

impl Bench {
    /// Queues with a lease of its own; `ttl` is the longest that its grace period allows.
    #[track_caller]
    fn queue_for(&mut self, owner: &str, lease: &str, ttl: &str) {
        let reply = self.acquire_for(owner, [lease, ttl], "60000", WHENEVER, "10");
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
        let args = ["zz", CHANNELS, FENCE_TTL, "1", "zz:1"];
        let reply = self.run(CHECK_QUEUE, &ALL, &args);
        reply.array()[1].array()[1].int()
    }
}

/// The holder's proof ends before its key does, whatever the lease. A grant that outlives its TTL,
/// as after a backward step of the clock, is cut to a grant's limit, not to a lease.
#[test]
fn a_grant_lasts_for_its_short_lease_and_the_grace() {
    for (lease, ttl, granted) in [("600000", "610000", 1_000), ("300", "5300", 300)] {
        let mut bench = Bench::queued(&["b"], &[]);
        bench.queue_for("b:1", lease, ttl);
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
        assert_eq!(bench.queue(), Vec::<String>::new());
        let confirmed = ttl.parse::<i64>().unwrap() - 250;
        bench.assert_left(confirmed, 250);
        // After the confirmation its own TTL counts, although the owner is queued again.
        bench.raw.cmd(&["ZADD", QUEUE, "1000000", "b:1"]);
        let entry = format!("9000000000000000 {lease} {ttl} name");
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

/// The fence must contain this token for the next one, even if the clock steps back.
#[test]
fn a_hand_off_keeps_its_token() {
    let mut bench = Bench::queued(&["b"], &["b:1"]);
    bench.release("a:1");
    let kept = bench.raw.get(FENCE);
    assert_eq!(kept, Some(format!("{}+", bench.token())));
    // A fence ahead of the clock is kept until the clock has reached it, and for the usual time
    // after.
    let hour_ahead = bench.hour_ahead();
    bench.raw.cmd(&["SET", FENCE, &hour_ahead.to_string()]);
    bench.acquire("b:2");
    bench.release("b:1");
    assert_eq!(bench.token(), hour_ahead + 1);
    assert!(bench.raw.pttl(FENCE) > 7_200_000 + 3_500_000);
}

/// The head that leaves the queue is not granted the lock.
#[test]
fn a_cancelled_call_is_not_granted_the_lock_freed_by_its_cancel() {
    let mut bench = Bench::queued(&["b", "c"], &["b:1", "c:1"]);
    bench.expire();
    assert!(!bench.release("b:1"));
    assert_eq!(bench.holder().as_deref(), Some("c:1"));
}

/// An entry is served for a second longer than its caller waits. Its queue outlives the entry and a
/// grant.
#[test]
fn a_queue_outlives_its_longest_wait() {
    let mut bench = Bench::queued(&[], &[]);
    let reply = bench.acquire_with("b:1", LEASE, "60000", WHENEVER);
    let now = reply.array()[1].int();
    let entry = bench.raw.cmd(&["HGET", ENTRY, "b:1"]);
    let deadline = entry.text().unwrap().split(' ').next().unwrap();
    assert_eq!(deadline.parse::<i64>().unwrap() - now, 61_000_000);
    let left = |bench: &mut Bench| [QUEUE, ENTRY].map(|key| bench.raw.pttl(key));
    let outlives = |left: [i64; 2], wait: i64| {
        let longest = wait + 12_000;
        (left.iter()).all(|left| *left > longest - 7_000 && *left <= longest)
    };
    assert!(outlives(left(&mut bench), 60_000));
    // A waiter with a shorter `wait` does not shorten it.
    bench.acquire_with("c:1", LEASE, "30000", WHENEVER);
    assert!(outlives(left(&mut bench), 60_000));
    for key in [QUEUE, ENTRY] {
        bench.acquire("b:1");
        bench.raw.cmd(&["PEXPIRE", key, "5000"]);
        bench.acquire_with("c:1", LEASE, "30000", WHENEVER);
        assert!(outlives(left(&mut bench), 30_000), "{key}");
    }
}

#[test]
fn a_holder_without_a_queue_entry_is_not_missing() {
    let mut bench = Bench::new(&[]);
    bench.acquire("a:1");
    let (value, missing) = bench.check_queue("a:1");
    assert!(value.starts_with("2 a:1 ") && !missing, "{value}");
    let (_, missing) = bench.check_queue("a:2");
    assert!(missing);
}

#[test]
fn a_foreign_key_does_not_stop_queue_checks_of_others() {
    let mut bench = Bench::new(&[]);
    bench.acquire("a:1");
    bench.raw.cmd(&["HSET", "t:lock:{x}", "a", "1"]);
    let foreign = ["t:lock:{x}", "t:queue:{x}", "t:entry:{x}", "t:fence:{x}"];
    let args = ["b", CHANNELS, FENCE_TTL, "1", "b:1", "1", "b:1"];
    let reply = bench.run(CHECK_QUEUE, &[foreign, ALL].concat(), &args);
    let [_, foreign, seen] = reply.array() else {
        panic!("{reply:?}");
    };
    assert!(foreign.text().unwrap().contains("WRONGTYPE"), "{foreign:?}");
    assert!(seen.array()[0].text().unwrap().starts_with("2 a:1 "));
}

#[test]
fn a_granted_call_stops_waiting() {
    let mut bench = Bench::queued(&["b"], &["b:1", "b:2"]);
    let waiters = |bench: &mut Bench| bench.run(INSPECT, &ALL, &["0"]).array()[3].int();
    assert_eq!(waiters(&mut bench), 2);
    bench.release("a:1");
    assert_eq!(waiters(&mut bench), 1, "one is marked");
}

/// Without memory no new state may be written, but writes that end an older state are allowed.
/// Grants and purges go on.
#[test]
fn queue_checks_grant_and_purge_without_memory() {
    let mut bench = Bench::queued(&["f0", "ee"], &["f0:1"]);
    super::bounded::fill(&mut bench.raw, [QUEUE, ENTRY], "ee", 1, 1_200);
    bench.configure("maxmemory", "1");
    bench.expire();
    bench.check_queue("ee:1");
    assert_eq!(bench.holder().as_deref(), Some("f0:1"));
    bench.expire();
    let mut checks = 0;
    while bench.holder().is_none() {
        bench.check_queue("ee:1");
        checks += 1;
        assert!(checks < 10, "a purge does not go on");
    }
    assert_eq!(bench.holder().as_deref(), Some("ee:1"));
}

/// A denied PUBLISH or count does not prevent a grant, because a queue check finds it.
#[test]
fn permissions_to_publish_and_to_count_are_not_needed() {
    let mut bench = Bench::queued(&[], &["b:1"]);
    let user = "ACL SETUSER narrow on >secret ~* &* +@all -publish -pubsub";
    bench.raw.cmd(&user.split(' ').collect::<Vec<_>>());
    let mut narrow = bench.server.client();
    narrow.cmd(&["AUTH", "narrow", "secret"]);
    bench.raw = narrow;
    assert!(bench.release("a:1"));
    assert_eq!(bench.holder().as_deref(), Some("b:1"));
    assert!(bench.raw.pttl(LOCK) <= TTL.parse().unwrap());
}
