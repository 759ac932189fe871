//! After healing: every key can be acquired again, and nothing stays behind.

use std::time::{Duration, Instant};

use distlock::LockManager;
use tokio::task::JoinSet;

use super::Setup;
use crate::history::{SupervisorEvent, now};
use crate::worker::{QUEUE, key};

/// How much longer than lease and grace a key may take.
const SLACK: Duration = Duration::from_secs(1);

/// For how long the server keeps a lock with this lease, in ms.
fn kept(lease_ms: u64) -> Duration {
    Duration::from_millis(lease_ms + (lease_ms / 10).clamp(250, 10_000))
}

/// Acquires each key once, at the same time, with a client of its own past all links.
pub(crate) fn try_all(setup: &Setup) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let manager = LockManager::builder()
            .url(setup.field.master().url())
            .client_name("supervisor")
            .connect()
            .await?;
        let wait = kept(setup.profile.longest_lease()) + SLACK;
        let keys = (0..setup.keys).map(|number| key(number.into()));
        let mut tries = JoinSet::new();
        for key in keys.chain([QUEUE.to_owned()]) {
            let lock = manager.lock(&key).lease(Duration::from_secs(1)).wait(wait);
            tries.spawn(async move {
                let started = Instant::now();
                let guard = lock.acquire().await;
                let event = SupervisorEvent::KeyTried {
                    at: now(),
                    key,
                    acquired: guard.is_ok(),
                    waited_ms: millis(started.elapsed()),
                };
                if let Ok(guard) = guard {
                    // It was held for a moment only.
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

/// What is left of locks and queues once nobody can want it any more.
pub(crate) fn leftovers(setup: &Setup) -> Vec<String> {
    let mut client = setup.field.master().client();
    let deadline = Instant::now() + kept(setup.profile.longest_lease());
    loop {
        let mut keys = client.keys("distlock:*");
        keys.retain(|key| !key.starts_with("distlock:fence:"));
        if keys.is_empty() || Instant::now() > deadline {
            return keys;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
