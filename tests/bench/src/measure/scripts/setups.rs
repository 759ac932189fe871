//! What gives scripts much to do. The server remembers each command, with the time that it took.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use distlock::LockManager;
use distlock_tests::{RedisServer, Resp};
use tokio::task::JoinSet;

use super::names::by_hash;
use crate::measure::{in_task, many, two_workers};

/// Nobody comes back from there.
const DEAD: &str = "dddddddddddddddddddddddddddddddd";
const OTHER: &str = "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";
const LONG: Duration = Duration::from_secs(60);
pub(super) const MANY_KEYS: usize = 1_000;
pub(super) const FULL: usize = 10_000;
pub(super) const HOLDS: usize = 3_000;
/// Of those: each is renewed soon.
const LEASE: Duration = Duration::from_secs(3);
/// How long a grant is held until it has been confirmed: that is not done for shorter ones.
const CONFIRMED: Duration = Duration::from_millis(200);

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

/// A script that was run.
pub(super) struct Script {
    pub(super) name: &'static str,
    pub(super) ms: f64,
}

pub(super) struct Bench {
    server: RedisServer,
    raw: Resp,
    runtime: tokio::runtime::Runtime,
    patient: LockManager,
    /// Finds queues full.
    narrow: LockManager,
    round: usize,
    names: HashMap<String, &'static str>,
}

impl Bench {
    pub(super) fn start() -> anyhow::Result<Self> {
        let server = RedisServer::start();
        let mut raw = server.client();
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
            names: by_hash(),
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

    pub(super) fn end(self) {
        for manager in [&self.patient, &self.narrow] {
            self.runtime.block_on(manager.shutdown());
        }
    }

    /// The scripts since the reset.
    fn scripts(&mut self) -> anyhow::Result<Vec<Script>> {
        let log = self.raw.cmd(&["SLOWLOG", "GET", "100000"]);
        let mut scripts = Vec::new();
        for entry in log.array() {
            let (entry, words) = (entry.array(), entry.array()[3].array());
            if words[0].text() == Some("EVALSHA") {
                let hash = words[1].text().unwrap_or_default();
                let name = self.names.get(hash);
                let name = name.with_context(|| format!("nobody knows the script {hash}"))?;
                let ms = entry[2].int() as f64 / 1e3;
                scripts.push(Script { name, ms });
            }
        }
        ensure!(!scripts.is_empty(), "no script was run");
        Ok(scripts)
    }

    /// A frozen client's grant has expired; the dead stand before and between its entries.
    pub(super) fn purge(&mut self, entries: usize) -> anyhow::Result<Vec<Script>> {
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

    /// A holder leaves a queue of the dead behind.
    pub(super) fn release(&mut self, entries: usize) -> anyhow::Result<Vec<Script>> {
        let key = self.key();
        let lock = self.patient.lock(&key);
        let guard = in_task(&self.runtime, async move { Ok(lock.acquire().await?) })?;
        self.fill(&key, DEAD, entries)?;
        self.reset();
        let manager = self.patient.clone();
        in_task(&self.runtime, async move {
            manager.inspect(&key).await?;
            Ok(guard.release().await?)
        })?;
        self.scripts()
    }

    /// A waiter is served while many stand behind it, and serves the next of them.
    pub(super) fn hand_off(&mut self, entries: usize) -> anyhow::Result<Vec<Script>> {
        let key = self.key();
        let mut subscriber = self.server.client();
        subscriber.cmd(&["SUBSCRIBE", &format!("distlock:client:{OTHER}")]);
        let lock = self.patient.lock(&key);
        let guard = in_task(&self.runtime, async move { Ok(lock.acquire().await?) })?;
        let lock = self.narrow.lock(&key).wait(LONG);
        let waiting = self.runtime.spawn(async move { lock.acquire().await });
        let queue = format!("distlock:queue:{{{key}}}");
        let started = Instant::now();
        while self.raw.cmd(&["ZCARD", &queue]).int() == 0 && started.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.fill(&key, OTHER, entries)?;
        self.reset();
        let manager = self.patient.clone();
        in_task(&self.runtime, async move {
            guard.release().await?;
            let next = waiting.await??;
            manager.inspect(&key).await?;
            tokio::time::sleep(CONFIRMED).await;
            Ok(next.release().await?)
        })?;
        self.scripts()
    }

    /// Many holds of one client are renewed in few batches.
    pub(super) fn renew(&mut self) -> anyhow::Result<Vec<Script>> {
        let acquiring = many::acquire(self.patient.clone(), "bench:scripts:held", HOLDS, LEASE);
        let guards = in_task(&self.runtime, acquiring)?;
        self.reset();
        // More than half of the lease.
        std::thread::sleep(Duration::from_millis(1_600));
        let scripts = self.scripts();
        in_task(&self.runtime, async move {
            for guard in guards {
                guard.release().await?;
            }
            Ok(())
        })?;
        scripts
    }

    /// Everybody lives, so everybody is looked at in vain.
    pub(super) fn full(&mut self) -> anyhow::Result<Vec<Script>> {
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

    pub(super) fn look(&mut self) -> anyhow::Result<Vec<Script>> {
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
