//! Acquire and release of a lock that nobody else wants, one after another.

use std::sync::Arc;

use distlock_tests::RedisServer;

use super::{Scale, connect, in_task, one_thread, times, two_workers};
use crate::baseline::{Bare, OnThread};
use crate::report::Row;
use crate::stats::Rounds;

/// Of one sitting.
const ROUNDS: usize = 8;
const PAIRS: usize = 200;
const PINGS: usize = 100;

#[derive(Default)]
struct Figures {
    ours: Rounds,
    threaded: Rounds,
    local: Rounds,
    threaded_ping: Rounds,
    local_ping: Rounds,
}

pub(crate) fn run(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let server = RedisServer::start();
    let mut rows = Vec::new();
    for (name, runtime) in [
        ("current-thread", one_thread as fn() -> _),
        ("2 workers", two_workers),
    ] {
        let mut figures = Figures::default();
        for _ in 0..scale.pick(12, 4) {
            figures = in_task(&runtime()?, sitting(figures, server.url()))?;
        }
        rows.extend(figures.rows(name));
    }
    Ok(rows)
}

impl Figures {
    fn rows(&self, runtime: &str) -> [Row; 3] {
        let what = |what: &str| format!("{what}, {runtime}");
        let ours = &self.ours;
        [
            Row::new(what("acquire + release p50"), ours.median(), "us")
                .against("bare pair, equal thread", self.threaded.median())
                .at_most(1.15)
                .note(ours.ratios_to(&self.threaded)),
            Row::new(what("acquire + release p50"), ours.median(), "us")
                .against("bare pair, caller's runtime", self.local.median())
                .at_most(1.6)
                .note(ours.ratios_to(&self.local)),
            Row::new(
                what("PING p50 through an equal thread"),
                self.threaded_ping.median(),
                "us",
            )
            .against("PING, caller's runtime", self.local_ping.median()),
        ]
    }
}

/// Rounds with threads and connections of their own: on which core a thread happens to live decides
/// what its wake-ups cost, and it seldom moves.
async fn sitting(mut figures: Figures, url: String) -> anyhow::Result<Figures> {
    let manager = connect(&url, 1).await?.remove(0);
    let lock = manager.lock("bench:uncontended:ours");
    let ours = async || -> anyhow::Result<()> { Ok(lock.acquire().await?.release().await?) };

    let owner: Arc<str> = "0123456789abcdef0123456789abcdef:1".into();
    let threaded = OnThread::start(&url).await?;
    let local = Bare::connect(&url).await?;
    let (of_thread, of_local): (Arc<str>, Arc<str>) = (
        "bench:uncontended:thread".into(),
        "bench:uncontended:local".into(),
    );

    // The first round warms up.
    for round in 0..=ROUNDS {
        let a = times(PAIRS, &ours).await?;
        let b = times(PAIRS, || threaded.pair(&of_thread, &owner)).await?;
        let c = times(PAIRS, || local.pair(&of_local, &owner)).await?;
        let d = times(PINGS, || threaded.ping()).await?;
        let e = times(PINGS, || local.ping()).await?;
        if round > 0 {
            figures.ours.push_median(&a);
            figures.threaded.push_median(&b);
            figures.local.push_median(&c);
            figures.threaded_ping.push_median(&d);
            figures.local_ping.push_median(&e);
        }
    }
    manager.shutdown().await;
    Ok(figures)
}
