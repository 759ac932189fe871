//! A script touches a bounded number of elements, however long the queue is. The next script
//! continues its work.

use distlock_tests::fill_queue;

use super::{BUSY, Bench, ENTRY, QUEUE, UNFINISHED};

/// Limit of commands and elements: several times the cost of a short queue, far from a long one.
pub(super) const BOUND: usize = 1_000;

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
    fill_queue(&mut bench.raw, [QUEUE, ENTRY], "f0", 2, 1_000);
    fill_queue(&mut bench.raw, [QUEUE, ENTRY], "ee", 1, LIVE);
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
