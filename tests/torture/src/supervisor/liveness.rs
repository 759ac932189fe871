//! Checks after healing: every key can be acquired, and nothing stays behind.

use std::time::{Duration, Instant};

use distlock::LockManager;
use tokio::task::JoinSet;

use super::Setup;
use crate::history::{SupervisorEvent, now};
use crate::servers::{BANKS, bank, terms};
use crate::worker;

/// How much longer than lease and grace period an acquisition may take.
const SLACK: Duration = Duration::from_secs(1);

/// Returns all keys of a run, and the upper limit of how long the server keeps their locks.
fn keys(setup: &Setup) -> (Vec<String>, Duration) {
    let options = &setup.options;
    let mut keys: Vec<_> = worker::all_keys(options.keys).collect();
    let mut lease = Duration::from_millis(options.profile.longest_lease());
    if options.topology.min_replicas() > 0 {
        let (kept, longer) = worker::kept();
        keys.extend(kept);
        lease = lease.max(longer);
    }
    if options.topology.has_accounts() {
        keys.extend((0..BANKS).map(bank));
    }
    let grace = (lease / 10).clamp(Duration::from_millis(250), Duration::from_secs(10));
    (keys, lease + grace)
}

/// Tries every key once, all at the same time, with a separate client that bypasses the links.
pub(crate) fn try_all(setup: &Setup) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut builder = LockManager::builder().client_name("supervisor");
        if setup.options.topology.nodes() > 0 {
            builder = builder.quorum(terms(setup.options.profile));
        }
        let manager = builder.connect(&setup.target.own_url()).await?;
        let (keys, kept) = keys(setup);
        let mut tries = JoinSet::new();
        for key in keys {
            let lock = manager.lock(&key).lease(Duration::from_secs(1));
            let lock = lock.wait(kept + SLACK);
            tries.spawn(async move {
                let started = Instant::now();
                let guard = lock.acquire().await;
                let waited = started.elapsed().as_millis();
                let event = SupervisorEvent::KeyTried {
                    at: now(),
                    key,
                    acquired: guard.is_ok(),
                    waited_ms: u64::try_from(waited).unwrap_or(u64::MAX),
                };
                if let Ok(guard) = guard {
                    // The key was held for a moment only; the result of the release is irrelevant.
                    let _ = guard.release().await;
                }
                event
            });
        }
        while let Some(event) = tries.join_next().await {
            setup.log.record(&event?);
        }
        manager.shutdown().await;
        Ok(())
    })
}

/// Returns the keys that remain after the longest lease. Returns early if none remain.
pub(crate) fn leftovers(setup: &Setup) -> anyhow::Result<Vec<String>> {
    let deadline = Instant::now() + keys(setup).1;
    loop {
        let keys = setup.target.leftovers()?;
        if keys.is_empty() || Instant::now() > deadline {
            return Ok(keys);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
