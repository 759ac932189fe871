//! A script touches a bounded number of elements, however long the queue is. The next script
//! continues its work.

use distlock_tests::{Reply, Resp};

use super::{BUSY, Bench, CHECK_QUEUE, ENTRY, FENCE_TTL, QUEUE, UNFINISHED};

/// Limit of commands and elements: several times the cost of a short queue, far from a long one.
pub(super) const BOUND: usize = 1_000;

/// Appends entries of one client to a queue, as its acquires would.
const FILL: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2] or 0
    local order = math.max(now, last + 1)
    local entry = string.format('%.0f 1250 mutex 1 1 name', now + 60000000)
    for i = ARGV[2], ARGV[2] + ARGV[3] - 1 do
        redis.call('ZADD', KEYS[1], string.format('%.0f', order + i), ARGV[1] .. ':' .. i)
        redis.call('HSET', KEYS[2], ARGV[1] .. ':' .. i, entry)
    end
    redis.call('PEXPIRE', KEYS[1], 72000)
    redis.call('PEXPIRE', KEYS[2], 72000)";

pub(super) fn fill(raw: &mut Resp, queue: [&str; 2], client: &str, first: usize, count: usize) {
    for first in (first..first + count).step_by(10_000) {
        let count = count.min(10_000).to_string();
        let [queue, entry] = queue;
        let (first, words) = (first.to_string(), ["EVAL", FILL, "2", queue, entry, client]);
        let reply = raw.cmd(&[&words[..], &[&first, &count]].concat());
        assert!(!reply.is_error(), "{reply:?}");
    }
}

/// Returns for each script the number of its commands and of the elements that it requested.
pub(super) fn touched(lines: &[String], whole: usize) -> Vec<usize> {
    let mut scripts = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        if !line.contains(" lua] ") {
            if words[0] == "EVAL" {
                scripts.push(0);
            }
            continue;
        }
        let elements = match words[..] {
            ["ZRANGE", .., "LIMIT", _, count] | ["ZRANGE", .., "LIMIT", _, count, "WITHSCORES"] => {
                count.parse().unwrap()
            }
            ["ZRANGE", _, first, last, ..] => {
                let [first, last]: [i64; 2] = [first, last].map(|rank| rank.parse().unwrap());
                // A range counted from the end, or a range up to the end.
                let to_the_end = first >= 0 && last < 0;
                let count = usize::try_from(last - first + 1).unwrap_or(whole);
                if to_the_end { whole } else { count }
            }
            ["ZREM" | "HDEL", _, ref members @ ..] => members.len(),
            _ => 1,
        };
        *scripts.last_mut().expect("commands belong to a script") += elements;
    }
    scripts
}

#[test]
fn the_entries_of_a_silent_client_are_removed_in_slices() {
    const LIVE: usize = 100_000;
    let mut bench = Bench::queued(&["f0", "ee"], &["f0:1"]);
    fill(&mut bench.raw, [QUEUE, ENTRY], "f0", 2, 1_000);
    fill(&mut bench.raw, [QUEUE, ENTRY], "ee", 1, LIVE);
    bench.release("a:1");
    assert_eq!(bench.holder().as_deref(), Some("f0:1"));
    bench.silence("f0");
    let mut monitor = bench.server.monitor();
    assert_eq!(bench.try_acquire("b:1"), BUSY);
    assert_eq!(bench.acquire("b:2"), UNFINISHED);
    assert!(bench.release("b:2") || bench.holder().is_none());
    let mut checks = 0;
    let holder = loop {
        bench.check_queue("ee:1");
        checks += 1;
        if let Some(holder) = bench.holder() {
            break holder;
        }
        assert!(checks < 1_000, "it never comes to an end");
    };
    assert_eq!(holder, "ee:1");
    let scripts = touched(&monitor.lines(), LIVE);
    assert_eq!(
        bench.raw.cmd(&["ZCARD", QUEUE]).int(),
        LIVE as i64 - 1,
        "only those of the silent client, and that of the holder, are gone"
    );
    assert_eq!(scripts.len(), 3 + checks);
    let most = scripts.iter().max();
    assert!(most <= Some(&BOUND), "{most:?} in one script");
}

#[test]
fn dead_waiters_of_many_locks_exceed_one_queue_check() {
    const LOCKS: usize = 50;
    const DEAD: usize = 90;
    let mut bench = Bench::new(&["ee"]);
    let keys: Vec<String> = (0..LOCKS)
        .flat_map(|n| ["lock", "queue", "entry", "fence"].map(|kind| format!("t:{kind}:{{{n}}}")))
        .collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let declared: Vec<&str> = keys
        .chunks(4)
        .flat_map(|names| [names[0], names[3]])
        .collect();
    let mut arguments = vec!["ee", FENCE_TTL, ""];
    for names in keys.chunks(4) {
        fill(&mut bench.raw, [names[1], names[2]], "dd", 1, DEAD);
        fill(&mut bench.raw, [names[1], names[2]], "ee", 1, 1);
        arguments.extend(["1", "ee:1"]);
    }
    let mut monitor = bench.server.monitor();
    let mut checks = 0;
    let mut first_left = 0;
    // A grant may expire before the other locks have had one.
    let mut granted = [false; LOCKS];
    while granted.contains(&false) {
        let reply = bench.run(CHECK_QUEUE, &declared, &arguments);
        for (granted, seen) in granted.iter_mut().zip(&reply.array()[1..]) {
            let holder = seen.array().get(4).and_then(Reply::text);
            *granted |= holder == Some("ee:1");
        }
        checks += 1;
        assert!(checks < 1_000, "it never comes to an end");
        if checks == 1 {
            first_left = bench.raw.cmd(&["ZCARD", keys[keys.len() - 3]]).int();
        }
    }
    assert!(
        first_left < DEAD as i64 + 1,
        "the last lock waits for all others"
    );
    let scripts = touched(&monitor.lines(), DEAD);
    assert_eq!(scripts.len(), checks);
    let most = scripts.iter().max();
    assert!(most <= Some(&(2 * BOUND)), "{most:?} in one script");
}
