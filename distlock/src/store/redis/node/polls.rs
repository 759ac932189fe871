//! The calls that a polling client checks, because it gets no pushes.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::key::LockKey;
use crate::protocol::timing::LOOK_EVERY;
use crate::protocol::words::{Look, Owner};
use crate::util::backoff::Backoff;
use crate::util::mutex::lock;

/// Delays of a call's queue checks, starting when it was queued.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), LOOK_EVERY);

/// Upper limit of owners in one script call.
const MOST: usize = 500;

/// The calls that a polling client checks.
#[derive(Debug, Default)]
pub(crate) struct Polls {
    polled: Mutex<HashMap<Owner, Polled>>,
    pub(crate) added: Notify,
}

#[derive(Debug)]
struct Polled {
    key: LockKey,
    at: Instant,
    backoff: Backoff,
}

impl Polls {
    pub(crate) fn add(&self, key: &LockKey, owner: Owner) {
        let mut backoff = BACKOFF;
        let polled = Polled {
            key: key.clone(),
            at: Instant::now() + backoff.pause(),
            backoff,
        };
        lock(&self.polled).entry(owner).or_insert(polled);
        self.added.notify_one();
    }

    /// Stops checking a call. Returns true if it was checked.
    pub(crate) fn forget(&self, owner: Owner) -> bool {
        lock(&self.polled).remove(&owner).is_some()
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        lock(&self.polled).values().map(|polled| polled.at).min()
    }

    /// Returns the due calls by lock. Doubles the delay of each, up to the limit of `BACKOFF`.
    pub(crate) fn due(&self, now: Instant) -> Vec<Look> {
        let mut due: HashMap<LockKey, Vec<Owner>> = HashMap::new();
        for (owner, polled) in &mut *lock(&self.polled) {
            if polled.at <= now {
                polled.at = now + polled.backoff.pause();
                due.entry(polled.key.clone()).or_default().push(*owner);
            }
        }
        let mut looks = Vec::with_capacity(due.len());
        for (key, owners) in due {
            let parts = owners.chunks(MOST).map(<[Owner]>::to_vec);
            looks.extend(parts.map(|owners| Look {
                key: key.clone(),
                owners,
            }));
        }
        looks
    }
}
