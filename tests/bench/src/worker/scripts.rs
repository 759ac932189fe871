//! The time for which each script occupies the server, which runs no other command meanwhile.
//! SLOWLOG records every command with its duration.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context;
use distlock::LockManager;
use distlock_tests::{Resp, fill_queue};
use tokio::task::JoinSet;

use super::hold;
use super::load::key;
use super::manager::{acquire, builder, until_queued};
use super::order::{Order, Round, Rounds};

/// Clients without a subscription.
const DEAD: [&str; 2] = [
    "dddddddddddddddddddddddddddddddd",
    "cccccccccccccccccccccccccccccccc",
];
/// A client with a subscription.
const LIVE: &str = "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";
/// More entries than one script examines, but few enough to write quickly.
const BEHIND: usize = 20_000;
const WANTED_KEYS: usize = 1_000;
const HELD_KEYS: usize = 3_000;
/// The lease of the held keys, short so that they are renewed soon.
const LEASE: Duration = Duration::from_secs(3);
/// More than half of [`LEASE`], when renewals are due.
const UNTIL_RENEWED: Duration = Duration::from_millis(1_600);
/// The time of two queue checks.
const UNTIL_CHECKED: Duration = Duration::from_millis(1_200);
/// Long enough that the hold is confirmed; a shorter hold is not.
const UNTIL_CONFIRMED: Duration = Duration::from_millis(200);
const WAIT: Duration = Duration::from_secs(60);

/// Returns the hash of every script in the log, and its longest time in microseconds.
const LONGEST: &str = "
    local longest, reply = {}, {}
    for _, entry in ipairs(redis.call('SLOWLOG', 'GET', 100000)) do
        local command, hash = entry[4][1], entry[4][2]
        if command == 'EVALSHA' then
            longest[hash] = math.max(longest[hash] or 0, entry[3])
        end
    end
    for hash, time in pairs(longest) do
        reply[#reply + 1] = hash
        reply[#reply + 1] = time
    end
    return reply";

pub(super) struct Scripts {
    raw: Resp,
    /// Keeps [`LIVE`] alive.
    _subscriber: Resp,
    /// The holder and the waiter.
    managers: [LockManager; 2],
    names: HashMap<String, &'static str>,
    entries: usize,
    keys: usize,
}

impl Scripts {
    pub(super) async fn connect(order: &Order, entries: usize) -> anyhow::Result<Self> {
        let [mut raw, mut subscriber] = [hold::connect(&order.url)?, hold::connect(&order.url)?];
        raw.set_timeout(WAIT);
        raw.cmd(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
        raw.cmd(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
        subscriber.cmd(&["SUBSCRIBE", &format!("distlock:client:{LIVE}")]);
        let builder = builder(order).max_waiters(u32::MAX);
        let names = distlock::__inside::scripts().map(|(name, hash, _)| (hash, name));
        Ok(Scripts {
            raw,
            _subscriber: subscriber,
            managers: [
                builder.clone().connect(&order.url).await?,
                builder.connect(&order.url).await?,
            ],
            names: names.into(),
            entries,
            keys: 0,
        })
    }

    fn new_key(&mut self) -> String {
        self.keys += 1;
        key(&self.keys.to_string()).to_string()
    }

    fn fill(&mut self, key: &str, client: &str, count: usize) {
        let [queue, entry] = ["queue", "entry"].map(|kind| format!("distlock:{kind}:{{{key}}}"));
        fill_queue(&mut self.raw, [&queue, &entry], client, 1, count);
    }

    /// Clears the log, so that the commands that prepare a setup are not counted.
    fn start_recording(&mut self) {
        self.raw.cmd(&["SLOWLOG", "RESET"]);
    }

    fn record(&mut self, round: &mut Round) -> anyhow::Result<()> {
        let longest = self.raw.cmd(&["EVAL", LONGEST, "0"]);
        for pair in longest.array().chunks(2) {
            let hash = pair[0].text().unwrap_or_default();
            let name = self.names.get(hash);
            let name = name.with_context(|| format!("unknown script {hash}"))?;
            let ms = pair[1].int() as f64 / 1e3;
            round
                .samples
                .entry((*name).to_owned())
                .or_default()
                .push(ms);
        }
        Ok(())
    }

    /// Acquires behind entries of two dead clients.
    async fn acquire_behind_dead_waiters(&mut self) -> anyhow::Result<()> {
        let key = self.new_key();
        self.fill(&key, DEAD[1], self.entries / 2);
        self.fill(&key, DEAD[0], self.entries / 2);
        self.start_recording();
        let guard = self.managers[0].lock(key).wait(WAIT).acquire().await?;
        Ok(guard.release().await?)
    }

    async fn release_to_dead_waiters(&mut self) -> anyhow::Result<()> {
        let key = self.new_key();
        let guard = self.managers[0].lock(&key).acquire().await?;
        self.fill(&key, DEAD[0], BEHIND);
        self.start_recording();
        self.managers[0].inspect(&key).await?;
        Ok(guard.release().await?)
    }

    /// Hands the lock to a waiter that has many live waiters behind it.
    async fn hand_off(&mut self) -> anyhow::Result<()> {
        let key = self.new_key();
        let guard = self.managers[0].lock(&key).acquire().await?;
        let lock = self.managers[1].lock(&key).wait(WAIT);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        until_queued(&self.managers[0], &key, 1).await?;
        self.fill(&key, LIVE, BEHIND);
        self.start_recording();
        guard.release().await?;
        let next = waiter.await??;
        self.managers[0].inspect(&key).await?;
        tokio::time::sleep(UNTIL_CONFIRMED).await;
        Ok(next.release().await?)
    }

    async fn renew_many(&mut self) -> anyhow::Result<()> {
        let key = self.new_key();
        let _guards = acquire(&self.managers[0], &key, HELD_KEYS, LEASE).await?;
        self.start_recording();
        tokio::time::sleep(UNTIL_RENEWED).await;
        Ok(())
    }

    async fn check_many_queues(&mut self) -> anyhow::Result<()> {
        let key = self.new_key();
        let mut waiters = JoinSet::new();
        for index in 0..WANTED_KEYS {
            let key = format!("{key}:{index}");
            let held = format!("distlock:lock:{{{key}}}");
            let value = format!("2 {LIVE}:1 1700 600000 1700 bench");
            self.raw.cmd(&["SET", &held, &value, "PX", "600000"]);
            let lock = self.managers[0].lock(key).wait(WAIT);
            waiters.spawn(async move { lock.acquire().await.is_ok() });
        }
        for index in 0..WANTED_KEYS {
            until_queued(&self.managers[0], &format!("{key}:{index}"), 1).await?;
        }
        self.start_recording();
        tokio::time::sleep(UNTIL_CHECKED).await;
        waiters.shutdown().await;
        Ok(())
    }
}

impl Rounds for Scripts {
    async fn round(&mut self) -> anyhow::Result<Round> {
        let mut round = Round::default();
        self.acquire_behind_dead_waiters().await?;
        self.record(&mut round)?;
        self.release_to_dead_waiters().await?;
        self.record(&mut round)?;
        self.hand_off().await?;
        self.record(&mut round)?;
        self.renew_many().await?;
        self.record(&mut round)?;
        self.check_many_queues().await?;
        self.record(&mut round)?;
        Ok(round)
    }
}
