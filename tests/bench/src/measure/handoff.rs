//! One key that many want: how long it takes from a release to the next body, and whether all get the
//! same share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::ensure;
use distlock::{Lock, LockManager};
use tokio::task::JoinSet;

use super::{Context, Scale, connect, times};
use crate::baseline::OnThread;
use crate::place::Place;
use crate::report::chart::{self, Series};
use crate::report::{Chart, Findings, Row};
use crate::stats::{Rounds, micros, percentile, sorted};

const MANAGERS: usize = 8;
const WAITERS: [usize; 4] = [2, 16, 128, 1_000];
/// Round trips of one kind, before each run with some number of waiters, so that they and the
/// hand-offs see the same machine.
const BLOCKS: usize = 20;
const BLOCK: usize = 40;

/// Every waiter waits for a whole cycle of the queue, on a slow machine too.
const WAIT: Duration = Duration::from_secs(120);

/// What the bodies tell each other. The lock under test keeps them apart; the mutex is for the compiler.
struct Relay(Mutex<State>);

struct State {
    released: Option<Instant>,
    latencies: Vec<f64>,
    turns: Vec<usize>,
    limit: usize,
}

impl Relay {
    fn new(waiters: usize, limit: usize) -> Self {
        Relay(Mutex::new(State {
            released: None,
            latencies: Vec::with_capacity(limit),
            turns: vec![0; waiters],
            limit,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A body starts. `false` when enough was seen.
    fn started(&self, waiter: usize) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        if state.latencies.len() == state.limit {
            return false;
        }
        if let Some(released) = state.released.take() {
            state.latencies.push(micros(now.duration_since(released)));
            state.turns[waiter] += 1;
        }
        true
    }

    /// The next thing that happens is the call of release.
    fn releasing(&self) {
        self.state().released = Some(Instant::now());
    }
}

/// One run with some number of waiters.
pub(super) struct Run {
    pub(super) p50: f64,
    p99: f64,
    per_second: f64,
    fewest: usize,
    most: usize,
}

/// All runs with some number of waiters.
#[derive(Default)]
struct Figures {
    p50: Rounds,
    p99: Rounds,
    per_second: Rounds,
    /// Of the run where the turns were farthest apart: how far, and the fewest and most of a waiter.
    apart: (f64, usize, usize),
}

/// What came of all runs with one setting.
#[derive(Default)]
struct Course {
    idle: Idle,
    figures: [Figures; 4],
}

pub(crate) fn run(context: &Context) -> anyhow::Result<Findings> {
    let (scale, mut rows, mut series) = (context.scale, Vec::new(), Vec::new());
    for setting in &context.settings {
        let server = setting.start_server()?;
        let url = server.url();
        let course = Place::Task.run(setting.clients, move || measure(url, scale))?;
        rows.extend(course.rows(setting.name));
        series.extend(course.series(setting.name));
    }
    let title = "From a release to the next body";
    let axes = ["waiters (log)", "p50, us"];
    let chart = Chart {
        name: "handoff",
        svg: chart::lines(title, axes, &series),
    };
    Ok(Findings {
        rows,
        charts: vec![chart],
    })
}

async fn measure(url: String, scale: Scale) -> anyhow::Result<Course> {
    let mut course = Course::default();
    // Of each waiter in each run; and hand-offs of a run, at least.
    let (turns, fewest) = scale.pick((25, 2_000), (20, 1_000));
    for _ in 0..scale.pick(3, 1) {
        // New ones each time: on which cores their threads happen to live decides what a wake-up costs.
        let managers = connect(&url, MANAGERS).await?;
        let mut threads = Vec::new();
        for _ in 0..MANAGERS {
            threads.push(OnThread::start(&url).await?);
        }
        // It warms up.
        hand_off(&managers, MANAGERS, fewest).await?;
        for (waiters, figures) in WAITERS.into_iter().zip(&mut course.figures) {
            course.idle.measure(&managers[0], &threads).await?;
            let hand_offs = (turns * waiters).max(fewest);
            figures.add(&hand_off(&managers, waiters, hand_offs).await?);
        }
        for manager in &managers {
            manager.shutdown().await;
        }
    }
    Ok(course)
}

impl Course {
    fn rows(&self, setting: &str) -> Vec<Row> {
        let mut rows = self.idle.rows(setting);
        for (waiters, figures) in WAITERS.into_iter().zip(&self.figures) {
            rows.extend(figures.rows(waiters, setting, &self.idle.ping));
        }
        let [_, few, _, many] = self.figures.each_ref().map(|of| of.p50.median());
        let flat = Row::new(
            format!("hand-off p50, {} waiters, {setting}", WAITERS[3]),
            many,
            "us",
        );
        rows.push(
            flat.against(format!("{} waiters", WAITERS[1]), few)
                .at_most(1.3),
        );
        rows
    }

    fn series(&self, setting: &str) -> [Series; 2] {
        let waiters = WAITERS.map(|waiters| waiters as f64);
        let ours = self.figures.iter().map(|figures| figures.p50.median());
        let ping = self.idle.ping.median();
        [
            Series {
                name: format!("hand-off, {setting}"),
                points: waiters.into_iter().zip(ours).collect(),
                dashed: false,
            },
            Series {
                name: format!("PING, equal thread, {setting}"),
                points: waiters.map(|waiters| (waiters, ping)).to_vec(),
                dashed: true,
            },
        ]
    }
}

/// Round trips while nobody wants anything.
#[derive(Default)]
struct Idle {
    ping: Rounds,
    in_turn: Rounds,
    inspected: Rounds,
}

impl Idle {
    /// In short blocks that alternate: right after a busy time threads are spread over the cores, later
    /// those that wake each other have met on one.
    async fn measure(&mut self, manager: &LockManager, threads: &[OnThread]) -> anyhow::Result<()> {
        let (mut ping, mut in_turn, mut inspected) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..BLOCKS {
            ping.extend(times(BLOCK, || threads[0].ping()).await?);
            let mut next = threads.iter().cycle();
            let other = || next.next().unwrap_or(&threads[0]).ping();
            in_turn.extend(times(BLOCK, other).await?);
            let inspect = async || -> anyhow::Result<()> {
                manager.inspect("bench:idle").await?;
                Ok(())
            };
            inspected.extend(times(BLOCK, inspect).await?);
        }
        self.ping.push_median(&ping);
        self.in_turn.push_median(&in_turn);
        self.inspected.push_median(&inspected);
        Ok(())
    }

    fn rows(&self, setting: &str) -> Vec<Row> {
        let ping = self.ping.median();
        let against_ping = |row: Row| row.against("PING, equal thread", ping);
        vec![
            Row::new(
                format!("PING p50, idle, equal thread, {setting}"),
                ping,
                "us",
            )
            .note(self.ping.middle_half(0)),
            against_ping(Row::new(
                format!("PING p50, idle, {MANAGERS} equal threads in turn, {setting}"),
                self.in_turn.median(),
                "us",
            ))
            .note(self.in_turn.middle_half(0)),
            against_ping(Row::new(
                format!("inspect p50, idle, a manager's thread, {setting}"),
                self.inspected.median(),
                "us",
            )),
        ]
    }
}

impl Figures {
    fn add(&mut self, run: &Run) {
        self.p50.push(run.p50);
        self.p99.push(run.p99);
        self.per_second.push(run.per_second);
        let apart = (run.most - run.fewest) as f64 / run.most.max(1) as f64 * 100.0;
        if self.apart.2 == 0 || apart > self.apart.0 {
            self.apart = (apart, run.fewest, run.most);
        }
    }

    fn rows(&self, waiters: usize, setting: &str, ping: &Rounds) -> [Row; 3] {
        let what = |what: &str| format!("hand-off {what}, {waiters} waiters, {setting}");
        let (apart, fewest, most) = self.apart;
        [
            Row::new(what("p50"), self.p50.median(), "us")
                .against("PING, equal thread", ping.median())
                .at_most(1.7)
                .note(format!(
                    "{}; {:.0} hand-offs/s",
                    self.p50.middle_half(0),
                    self.per_second.median()
                )),
            Row::new(what("p99"), self.p99.median(), "us"),
            Row::new(what("turns apart"), apart, "%")
                .at_most(10.0)
                .note(format!("worst run: {fewest} to {most} turns")),
        ]
    }
}

/// Lets `waiters` tasks take turns until there were `limit` hand-offs.
pub(super) async fn hand_off(
    managers: &[LockManager],
    waiters: usize,
    limit: usize,
) -> anyhow::Result<Run> {
    let key = format!("bench:handoff:{waiters}");
    let starter = managers[0].lock(&key).acquire().await?;
    let relay = Arc::new(Relay::new(waiters, limit));
    let mut tasks = JoinSet::new();
    for waiter in 0..waiters {
        let lock = managers[waiter % managers.len()].lock(&key).wait(WAIT);
        tasks.spawn(take_turns(lock, waiter, relay.clone()));
    }
    // All of them stand in the queue before the first is served.
    while managers[0].inspect(&key).await?.waiters < waiters as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let started = Instant::now();
    starter.release().await?;
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let elapsed = started.elapsed().as_secs_f64();
    let state = relay.state();
    ensure!(state.latencies.len() == limit, "the waiters stopped early");
    let latencies = sorted(state.latencies.clone());
    Ok(Run {
        p50: percentile(&latencies, 0.5),
        p99: percentile(&latencies, 0.99),
        per_second: limit as f64 / elapsed,
        fewest: state.turns.iter().copied().min().unwrap_or(0),
        most: state.turns.iter().copied().max().unwrap_or(0),
    })
}

async fn take_turns(lock: Lock, waiter: usize, relay: Arc<Relay>) -> anyhow::Result<()> {
    loop {
        let guard = lock.acquire().await?;
        let more = relay.started(waiter);
        relay.releasing();
        guard.release().await?;
        if !more {
            return Ok(());
        }
    }
}
