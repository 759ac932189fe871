//! A bounded number of cases, the same ones each time.

use fuzz::Tally;
use tokio::task::JoinSet;

const CASES: u64 = 320;
const AT_ONCE: u64 = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_never_panics_and_never_grants() {
    let mut tally = Tally::default();
    let mut running = JoinSet::new();
    for seed in 1..=CASES {
        running.spawn(fuzz::run(seed));
        if seed >= AT_ONCE {
            tally += running.join_next().await.unwrap().unwrap().unwrap();
        }
    }
    while let Some(case) = running.join_next().await {
        tally += case.unwrap().unwrap();
    }
    // Every outcome is common: otherwise nothing was shown.
    for (what, count) in [
        ("guards", tally.guards),
        ("busy", tally.busy),
        ("failed", tally.failed),
        ("lost", tally.lost),
        ("unconnected", tally.unconnected),
    ] {
        assert!(count >= CASES / 20, "only {count} {what}: {tally:?}");
    }
}
