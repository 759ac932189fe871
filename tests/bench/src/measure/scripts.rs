//! How long the longest script keeps the server, which does nothing else meanwhile.

use std::time::{Duration, Instant};

use anyhow::ensure;
use distlock::LockManager;
use distlock_tests::{RedisServer, Resp};
use tokio::task::JoinSet;

use super::{Scale, in_task, two_workers};
use crate::report::Row;
use crate::stats::{median, percentile, sorted};

/// Nobody comes back from there.
const DEAD: &str = "dddddddddddddddddddddddddddddddd";
const OTHER: &str = "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";
const LONG: Duration = Duration::from_secs(60);
const MANY_KEYS: usize = 1_000;
const FULL: usize = 10_000;

/// Entries of one client at the end of a queue.
const FILL: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2] or 0
    local order = math.max(now, math.abs(last) + 1)
    local entry = string.format('%.0f 1000 1250 bench', now + 600000000)
    for i = 1, ARGV[2] do
        local owner = ARGV[1] .. ':' .. string.format('%.0f', order + i)
        redis.call('ZADD', KEYS[1], string.format('%.0f', order + i), owner)
        redis.call('HSET', KEYS[2], owner, entry)
    end
    redis.call('PEXPIRE', KEYS[1], 600000)
    redis.call('PEXPIRE', KEYS[2], 600000)";

pub(crate) fn run(scale: Scale) -> anyhow::Result<Vec<Row>> {
    let rounds = scale.pick(5, 3);
    let entries = scale.pick(100_000, 20_000);
    let mut bench = Bench::start()?;
    let (mut purges, mut looks, mut asks) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        purges.push(bench.purge(entries)?);
        looks.push(bench.look()?);
        asks.push(bench.full()?);
    }
    for manager in [&bench.patient, &bench.narrow] {
        bench.runtime.block_on(manager.shutdown());
    }
    let row = |what: String, runs: &[Vec<f64>]| {
        let longest: Vec<_> = runs.iter().map(|run| percentile(run, 1.0)).collect();
        let all = sorted(runs.concat());
        Row::new(format!("longest script, {what}"), median(&longest), "ms")
            .at_most(5.0)
            .note(format!(
                "the longest of {rounds} runs: {:.2} ms; of all scripts half took {:.2} ms, 99 % at most {:.2} ms",
                percentile(&all, 1.0),
                percentile(&all, 0.5),
                percentile(&all, 0.99),
            ))
    };
    Ok(vec![
        row(format!("{entries} dead waiters"), &purges),
        row(format!("waiting for {MANY_KEYS} keys"), &looks),
        row(format!("a full queue of {FULL}"), &asks),
    ])
}

struct Bench {
    server: RedisServer,
    raw: Resp,
    runtime: tokio::runtime::Runtime,
    patient: LockManager,
    /// Finds queues full.
    narrow: LockManager,
    round: usize,
}

impl Bench {
    fn start() -> anyhow::Result<Self> {
        let server = RedisServer::start();
        let mut raw = server.client();
        // Each command is remembered, with the time that it took.
        raw.cmd(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
        raw.cmd(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
        raw.set_timeout(LONG);
        let runtime = two_workers()?;
        let builder = LockManager::builder().url(server.url());
        let (patient, narrow) = in_task(&runtime, async move {
            let narrow = builder.clone().max_waiters(FULL as u32).connect().await?;
            Ok((builder.max_waiters(u32::MAX).connect().await?, narrow))
        })?;
        Ok(Bench {
            server,
            raw,
            runtime,
            patient,
            narrow,
            round: 0,
        })
    }

    fn fill(&mut self, key: &str, client: &str, count: usize) -> anyhow::Result<()> {
        let [queue, entry] = ["queue", "entry"].map(|kind| format!("distlock:{kind}:{{{key}}}"));
        let count = count.to_string();
        let reply = self
            .raw
            .cmd(&["EVAL", FILL, "2", &queue, &entry, client, &count]);
        ensure!(!reply.is_error(), "{reply:?}");
        Ok(())
    }

    /// A new key, and nothing remembered of what came before.
    fn key(&mut self) -> String {
        self.round += 1;
        format!("bench:scripts:{}", self.round)
    }

    fn reset(&mut self) {
        self.raw.cmd(&["SLOWLOG", "RESET"]);
    }

    /// How long each script since the reset took, in milliseconds, the longest last.
    fn scripts(&mut self) -> anyhow::Result<Vec<f64>> {
        let log = self.raw.cmd(&["SLOWLOG", "GET", "100000"]);
        let scripts = log.array().iter().filter_map(|entry| {
            let entry = entry.array();
            let is_script = entry[3].array()[0].text() == Some("EVALSHA");
            is_script.then(|| entry[2].int() as f64 / 1e3)
        });
        let scripts = sorted(scripts.collect());
        ensure!(!scripts.is_empty(), "no script was run");
        Ok(scripts)
    }

    /// A frozen client's grant has expired; the dead stand before and between its entries.
    fn purge(&mut self, entries: usize) -> anyhow::Result<Vec<f64>> {
        let key = self.key();
        self.fill(&key, DEAD, 1)?;
        let queue = format!("distlock:queue:{{{key}}}");
        let marked = self.raw.cmd(&["ZRANGE", &queue, "0", "0", "WITHSCORES"]);
        let [owner, order] = [0, 1].map(|i| marked.array()[i].text().unwrap_or_default());
        self.raw.cmd(&["ZADD", &queue, &format!("-{order}"), owner]);
        self.fill(&key, OTHER, entries / 2)?;
        self.fill(&key, DEAD, entries / 2)?;
        self.reset();
        let lock = self.patient.lock(&key).wait(LONG);
        in_task(&self.runtime, async move {
            Ok(lock.acquire().await?.release().await?)
        })?;
        self.scripts()
    }

    /// Everybody lives, so everybody is looked at in vain.
    fn full(&mut self) -> anyhow::Result<Vec<f64>> {
        let key = self.key();
        let mut subscriber = self.server.client();
        subscriber.cmd(&["SUBSCRIBE", &format!("distlock:client:{OTHER}")]);
        let held = self.held(&key);
        self.fill(&key, OTHER, FULL)?;
        self.reset();
        let lock = self.narrow.lock(&key).wait(LONG);
        in_task(&self.runtime, async move {
            for _ in 0..100 {
                let refused = lock.acquire().await.err();
                ensure!(refused.is_some_and(|error| error.is_busy()), "not full");
            }
            Ok(())
        })?;
        self.raw.cmd(&["DEL", &held]);
        self.scripts()
    }

    /// Takes a lock for longer than anything here takes. Returns its name.
    fn held(&mut self, key: &str) -> String {
        let lock = format!("distlock:lock:{{{key}}}");
        let value = format!("2 {OTHER}:1 1700 600000 1700 somebody");
        self.raw.cmd(&["SET", &lock, &value, "PX", "600000"]);
        lock
    }

    fn look(&mut self) -> anyhow::Result<Vec<f64>> {
        let key = self.key();
        let keys: Vec<_> = (0..MANY_KEYS).map(|n| format!("{key}:{n}")).collect();
        for key in &keys {
            self.held(key);
        }
        let mut waiting = JoinSet::new();
        for key in &keys {
            let lock = self.patient.lock(key).wait(LONG);
            waiting.spawn_on(
                async move { lock.acquire().await.is_ok() },
                self.runtime.handle(),
            );
        }
        let started = Instant::now();
        while self.raw.cmd(&["DBSIZE"]).int() < 3 * MANY_KEYS as i64 && started.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.reset();
        // Each half second all of them are looked at.
        std::thread::sleep(Duration::from_millis(1_200));
        let scripts = self.scripts();
        self.runtime.block_on(waiting.shutdown());
        self.raw.cmd(&["FLUSHALL"]);
        scripts
    }
}
