//! Operations of tests on a memory server that bypass its clients, and a manual clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::holds::{Fence, HoldState, StoredHold};
use super::queue::{Owner, QueueEntry};
use super::server::MemoryServer;
use crate::config::options::Durability;
use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{OwnerId, Target};
use crate::protocol::once::Record;
use crate::protocol::timing::Timing;
use crate::store::client_id::ClientId;
use crate::util::clock::{BootInstant, Clock, ServerTime};

/// In µs.
const HOUR: i64 = 60 * 60 * 1_000_000;

/// A clock that only advances on request.
#[derive(Debug)]
pub(crate) struct HandClock {
    now: AtomicU64,
    wall: AtomicU64,
}

impl HandClock {
    pub(crate) fn new() -> Self {
        HandClock {
            now: AtomicU64::new(3_600_000_000_000),
            wall: AtomicU64::new(1_700_000_000_000_000),
        }
    }

    pub(crate) fn advance(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap();
        self.now.fetch_add(nanos, Ordering::Relaxed);
        self.wall.fetch_add(nanos / 1_000, Ordering::Relaxed);
    }
}

impl Clock for HandClock {
    fn now(&self) -> BootInstant {
        BootInstant(self.now.load(Ordering::Relaxed))
    }

    fn wall_micros(&self) -> u64 {
        self.wall.load(Ordering::Relaxed)
    }
}

/// The state on which a lock's future depends, as Redis also exposes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) hold: Option<HoldSnapshot>,
    /// The holds of a counted lock, by owner.
    pub(crate) shares: Vec<ShareSnapshot>,
    /// Their kind, with the number of permits of the last grant.
    pub(crate) kind: Option<LockKind>,
    pub(crate) phase: Option<FencingToken>,
    pub(crate) queue: Vec<EntrySnapshot>,
    pub(crate) queue_left: Duration,
    pub(crate) fence: Option<FencingToken>,
    pub(crate) fence_left: Duration,
    /// The success records, by selector.
    pub(crate) records: Vec<RecordSnapshot>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RecordSnapshot {
    pub(crate) selector: String,
    pub(crate) record: Record,
    pub(crate) left: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HoldSnapshot {
    pub(crate) owner: String,
    pub(crate) token: FencingToken,
    pub(crate) limit: Duration,
    pub(crate) since: u64,
    pub(crate) name: String,
    pub(crate) left: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ShareSnapshot {
    pub(crate) owner: String,
    pub(crate) weight: u32,
    /// `h` for held, `k` for kept by `min_hold`, `r` for revoked.
    pub(crate) flag: char,
    pub(crate) token: FencingToken,
    pub(crate) since: u64,
    pub(crate) name: String,
    pub(crate) left: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EntrySnapshot {
    pub(crate) owner: String,
    pub(crate) kind: LockKind,
    pub(crate) weight: u32,
    pub(crate) ttl: Duration,
    pub(crate) name: String,
    /// Zero once the deadline has passed.
    pub(crate) left: Duration,
}

impl Snapshot {
    /// Returns the owner, the token, the weight and the remaining time of each hold.
    pub(crate) fn holds(&self) -> impl Iterator<Item = (&str, FencingToken, u32, Duration)> {
        let hold = self.hold.iter();
        let hold = hold.map(|hold| (&*hold.owner, hold.token, 1, hold.left));
        let shares = self.shares.iter();
        hold.chain(shares.map(|share| (&*share.owner, share.token, share.weight, share.left)))
    }

    /// Returns the remaining time of the hold of an owner with this token.
    pub(crate) fn left(&self, owner: &str, token: FencingToken) -> Option<Duration> {
        let mut holds = self.holds();
        let hold =
            holds.find(|(its_owner, its_token, ..)| *its_owner == owner && *its_token == token);
        hold.map(|(.., left)| left)
    }
}

/// Returns an owner's hold on one server.
pub(crate) fn target(key: &LockKey, kind: Kind, owner: OwnerId, timing: Timing) -> Target<'_> {
    Target {
        key,
        kind,
        owner,
        timing,
        durability: Durability::NONE,
    }
}

/// Returns an owner as stored in Redis.
pub(crate) fn owner_text(client: &ClientId, owner: OwnerId) -> String {
    format!("{}:{owner}", client.as_str())
}

fn text(owner_id: &Owner) -> String {
    owner_text(&owner_id.client, owner_id.owner)
}

impl MemoryServer {
    fn now(&self) -> BootInstant {
        self.0.clock.now()
    }

    fn wall_micros(&self) -> u64 {
        self.0.clock.wall_micros()
    }

    pub(crate) fn snapshot(&self, key: &LockKey) -> Snapshot {
        let now = self.now();
        self.state().locks.with(key, now, |lock| Snapshot {
            hold: (lock.holds.all.iter().find(|hold| hold.kind == Kind::Mutex)).map(|hold| {
                HoldSnapshot {
                    owner: text(&hold.owner_id),
                    token: hold.token,
                    limit: hold.max_ttl,
                    since: hold.since.0,
                    name: hold.name.to_string(),
                    left: hold.expires_at.since(now),
                }
            }),
            shares: {
                let holds = lock.holds.all.iter();
                let shares = holds.filter(|hold| hold.kind != Kind::Mutex);
                let shares = shares.map(|hold| ShareSnapshot {
                    owner: text(&hold.owner_id),
                    weight: hold.kind.weight(),
                    flag: match hold.state {
                        HoldState::Held => 'h',
                        HoldState::Kept => 'k',
                        HoldState::Revoked => 'r',
                    },
                    token: hold.token,
                    since: hold.since.0,
                    name: hold.name.to_string(),
                    left: hold.expires_at.since(now),
                });
                let mut shares: Vec<_> = shares.collect();
                shares.sort_by(|a, b| a.owner.cmp(&b.owner));
                shares
            },
            kind: (lock.holds.kind()).filter(|kind| *kind != LockKind::Mutex),
            phase: lock.holds.phase,
            queue: (lock.queue.entries.values())
                .map(|entry| EntrySnapshot {
                    owner: text(&entry.owner_id),
                    kind: entry.kind.lock_kind(),
                    weight: entry.kind.weight(),
                    ttl: entry.timing.ttl(),
                    name: entry.name.to_string(),
                    left: entry.deadline.since(now),
                })
                .collect(),
            queue_left: if lock.queue.is_empty() {
                Duration::ZERO
            } else {
                lock.queue.expires_at.since(now)
            },
            fence: lock.fence.as_ref().map(|fence| fence.token),
            fence_left: (lock.fence.as_ref())
                .map_or(Duration::ZERO, |fence| fence.expires_at.since(now)),
            records: {
                let records = lock
                    .records
                    .iter()
                    .map(|(selector, stored)| RecordSnapshot {
                        selector: selector.clone(),
                        record: stored.record.clone(),
                        left: stored.expires_at.since(now),
                    });
                let mut records: Vec<_> = records.collect();
                records.sort_by(|a, b| a.selector.cmp(&b.selector));
                records
            },
        })
    }

    /// Expires all holds now, like DEL of the lock's key in Redis.
    pub(crate) fn delete_holds(&self, key: &LockKey) {
        let now = self.now();
        self.state().locks.with(key, now, |lock| {
            lock.holds.remove_expired(BootInstant(u64::MAX), true);
        });
    }

    /// Lets the hold of one holder of a counted lock expire now.
    pub(crate) fn expire_share(&self, key: &LockKey, owner: &str) {
        let now = self.now();
        self.state().locks.with(key, now, |lock| {
            let mut holds = lock.holds.all.iter_mut();
            if let Some(hold) = holds.find(|hold| text(&hold.owner_id) == owner) {
                hold.expires_at = now;
            }
        });
    }

    /// Lets the last grant of a client expire unconfirmed, if others wait for the lock.
    pub(crate) fn silence(&self, key: &LockKey, client: &ClientId) {
        let now = self.now();
        (self.state().locks).with(key, now, |lock| {
            if !lock.queue.is_empty() {
                (lock.holds.unconfirmed).insert(client.clone(), BootInstant(0));
            }
        });
    }

    /// Returns the kind as which the lock is in use.
    pub(crate) fn kind(&self, key: &LockKey) -> Option<LockKind> {
        let now = self.now();
        (self.state().locks).with(key, now, |lock| lock.kind_in_use())
    }

    /// Deletes the state of one lock, like FLUSHALL in Redis.
    pub(crate) fn delete_all(&self, key: &LockKey) {
        let now = self.now();
        (self.state().locks).with(key, now, |lock| *lock = Default::default());
    }

    /// Adds an entry at the end of the queue, whether or not its client is connected.
    pub(crate) fn add_entry(
        &self,
        key: &LockKey,
        client: &ClientId,
        owner: OwnerId,
        kind: Kind,
        timing: Timing,
        left: Duration,
    ) {
        let now = self.now();
        let entry = QueueEntry {
            kind,
            owner_id: Owner {
                client: client.clone(),
                owner,
            },
            key: key.clone(),
            timing,
            deadline: now + left,
            since: ServerTime(self.wall_micros()),
            name: "entered".into(),
        };
        (self.state().locks).with(key, now, |lock| lock.queue.join(entry));
    }

    /// Lets the deadline of an entry pass.
    pub(crate) fn lapse(&self, key: &LockKey, owner: &str) {
        let now = self.now();
        self.state().locks.with(key, now, |lock| {
            for entry in lock.queue.entries.values_mut() {
                if text(&entry.owner_id) == owner {
                    entry.deadline = BootInstant(0);
                }
            }
        });
    }

    /// Returns true if all holds of a lock have the number of permits of its last grant.
    pub(crate) fn has_one_number(&self, key: &LockKey) -> bool {
        let now = self.now();
        (self.state().locks).with(key, now, |lock| {
            let kinds = lock.holds.all.iter().map(|hold| hold.kind.lock_kind());
            kinds
                .into_iter()
                .all(|kind| lock.holds.kind() == Some(kind))
        })
    }

    /// Ends the read phase of a lock, which is not shared any longer.
    #[cfg(feature = "postgres")]
    pub(crate) fn end_phase(&self, key: &LockKey) {
        let now = self.now();
        (self.state().locks).with(key, now, |lock| lock.holds.phase = None);
    }

    /// Removes an entry of the queue.
    #[cfg(feature = "postgres")]
    pub(crate) fn remove_entry(&self, key: &LockKey, owner: &str) {
        let now = self.now();
        self.state().locks.with(key, now, |lock| {
            let mut entries = lock.queue.entries.values();
            let found = entries.find(|entry| text(&entry.owner_id) == owner);
            if let Some(owner_id) = found.map(|entry| entry.owner_id.clone()) {
                lock.queue.remove(&owner_id);
            }
        });
    }

    /// Sets the last token an hour ahead of the wall clock, as after a backward step of that clock.
    pub(crate) fn put_token_ahead(&self, key: &LockKey) {
        let hours = |n: u64| Duration::from_secs(n * 60 * 60);
        let now = self.now();
        let token = self.wall_micros() + u64::try_from(hours(1).as_micros()).unwrap();
        let fence = Fence {
            token: FencingToken::new(token),
            expires_at: now + hours(3),
        };
        (self.state().locks).with(key, now, |lock| lock.fence = Some(fence));
    }

    /// Shifts the acquisition of the hold of a mutex by some hours.
    pub(crate) fn shift_hold(&self, key: &LockKey, hours: i64) {
        let now = self.now();
        self.state().locks.with(key, now, |lock| {
            let is_mutex = |hold: &&mut StoredHold| hold.kind == Kind::Mutex;
            if let Some(hold) = lock.holds.all.first_mut().filter(is_mutex) {
                hold.since.0 = hold.since.0.strict_add_signed(hours * HOUR);
            }
        });
    }

    /// Shifts the acquisitions in the success records by some hours.
    pub(crate) fn shift_records(&self, key: &LockKey, hours: i64) {
        let now = self.now();
        self.state().locks.with(key, now, |lock| {
            for stored in lock.records.values_mut() {
                let since = &mut stored.record.since.0;
                *since = since.strict_add_signed(hours * HOUR);
            }
        });
    }

    /// Returns how many locks are remembered.
    pub(crate) fn remembered(&self) -> usize {
        let locks = &self.state().locks;
        assert_eq!(locks.sweep_order.len(), locks.by_name.len());
        locks.by_name.len()
    }
}
