//! Metrics of all managers, recorded through the facade [`metrics`](https://docs.rs/metrics):
//! install an exporter to see them.
//!
//! [The table of all
//! metrics](https://github.com/distlock/distlock/blob/main/docs/operations/observing.md#metrics)
//! has their types, labels and meanings. Calls and holds have the label `lock`, the name of their
//! lock: its template or its label, never its key. Each manager uses up to 500 names; further ones
//! become `other`. All times are in seconds. Histograms need [`BUCKETS`].
//!
//! ```
//! // At startup, with your exporter in place of this recorder:
//! metrics::set_global_recorder(metrics::NoopRecorder).expect("the first recorder");
//! let locks = distlock::LockManager::in_memory();
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{
    Counter, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::error::HoldKind;
use crate::loss::LossReason;
use crate::observer::Observer;
use crate::observer::event::{AcquireFailure, AcquirePath, Event, SkipKind};
use crate::observer::labels::MAX_NAMES;

/// Upper bounds for the buckets of histograms, in seconds: from 100 µs to 30 s, two per power of
/// ten.
///
/// An exporter writes one line per bucket, lock and outcome. With the exporter for Prometheus, pass
/// the bounds to `set_buckets_for_metric` with `Matcher::Prefix("distlock".into())`, because
/// `set_buckets` would change the histograms of your own service. The shipped alerts and dashboard
/// need `with_recommended_naming(true)`.
///
/// ```
/// assert!(distlock::metrics::BUCKETS.is_sorted());
/// ```
pub const BUCKETS: &[f64] = &[
    0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0,
];

/// The label of all further locks.
const OTHER: &str = "other";

/// Describes all metrics to the current recorder.
///
/// Managers do this when they are created. Call it if you install a recorder later.
///
/// ```
/// distlock::metrics::describe();
/// ```
pub fn describe() {
    for (name, what) in HISTOGRAMS {
        describe_histogram!(*name, Unit::Seconds, *what);
    }
    for (name, what) in GAUGES {
        describe_gauge!(*name, *what);
    }
    for (name, what) in COUNTERS {
        describe_counter!(*name, *what);
    }
}

/// Durations, in seconds.
const HISTOGRAMS: &[(&str, &str)] = &[
    (
        "distlock.acquire.duration",
        "Time from the start of a call until it has its lock or fails.",
    ),
    (
        "distlock.hold.duration",
        "Time from the acquisition of a lock until its hold ends.",
    ),
    (
        "distlock.handoff.duration",
        "Time from the server's grant of a handed-off lock until its new holder has it.",
    ),
    (
        "distlock.renewal.duration",
        "Time until the reply to a batch of renewals.",
    ),
    (
        "distlock.renewal.slack",
        "Time left until the safe deadline when a batch was renewed, for its hold nearest to a loss.",
    ),
    (
        "distlock.release.duration",
        "Time until the reply to the first attempt of a release.",
    ),
    (
        "distlock.store.command.duration",
        "Time until the reply to a command.",
    ),
];

const GAUGES: &[(&str, &str)] = &[
    ("distlock.locks.held", "Locks that this process holds."),
    (
        "distlock.permits.held",
        "Permits of semaphores that this process holds.",
    ),
    (
        "distlock.acquire.pending",
        "Calls that have started and not acquired their lock yet.",
    ),
    (
        "distlock.queue.length",
        "Waiters of a lock in all processes when it was last inspected.",
    ),
    (
        "distlock.store.unavailable",
        "Managers of this process that cannot use a server.",
    ),
    (
        "distlock.store.connections",
        "Open connections to a server.",
    ),
];

const COUNTERS: &[(&str, &str)] = &[
    (
        "distlock.skipped",
        "Calls with `on_busy` or `run_if`, or of `try_run`, that were skipped.",
    ),
    (
        "distlock.success_records",
        "Successful runs with `once_per` or `once_for`, by whether they are recorded.",
    ),
    (
        "distlock.locks.lost",
        "Locks that were lost while they were held.",
    ),
    (
        "distlock.locks.lost.after_completion",
        "Locks that were gone when their holder, already finished, released them.",
    ),
    (
        "distlock.renewal.failures",
        "Renewals of single holds that failed and are retried.",
    ),
    (
        "distlock.store.reconnects",
        "Connections that replaced another one.",
    ),
    (
        "distlock.events.skipped",
        "Events that were dropped because an observer is too slow.",
    ),
];

/// Records events as metrics.
pub(crate) struct Metrics {
    /// The labels of locks, and the kinds that have loss counters.
    names: Mutex<BTreeMap<Cow<'static, str>, Vec<HoldKind>>>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        describe();
        // Prometheus sees no increase in a counter that first appears with its first event.
        counter!("distlock.events.skipped").increment(0);
        counter!("distlock.renewal.failures").increment(0);
        Metrics {
            names: Mutex::default(),
        }
    }

    /// Returns the label of a lock. A name that has been a label remains one.
    fn label(&self, lock: Cow<'static, str>) -> Cow<'static, str> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.contains_key(&lock) {
            return lock;
        }
        let label = if names.len() < MAX_NAMES {
            lock
        } else {
            Cow::Borrowed(OTHER)
        };
        names.entry(label.clone()).or_default();
        label
    }

    /// Returns the label of a lock, and exports its loss counters for this kind.
    fn label_of(&self, lock: Cow<'static, str>, kind: HoldKind) -> Cow<'static, str> {
        let label = self.label(lock);
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = names.get_mut(&label).filter(|kinds| !kinds.contains(&kind));
        if let Some(kinds) = kinds {
            kinds.push(kind);
            // Before the first loss, which no alert would see otherwise (see `new`).
            let not_renewed = LossReason::NotRenewed {
                last_error: None,
                overdue: Duration::ZERO,
            };
            let revoked = LossReason::Revoked { by: None };
            for reason in [not_renewed, LossReason::Gone, revoked, LossReason::ShutDown] {
                lost(label.clone(), kind, &reason).increment(0);
            }
            lost_after_completion(label.clone(), kind).increment(0);
        }
        label
    }
}

fn lost(lock: Cow<'static, str>, kind: HoldKind, reason: &LossReason) -> Counter {
    counter!(
        "distlock.locks.lost",
        "lock" => lock, "kind" => kind.as_str(), "reason" => reason.as_str()
    )
}

fn lost_after_completion(lock: Cow<'static, str>, kind: HoldKind) -> Counter {
    counter!("distlock.locks.lost.after_completion", "lock" => lock, "kind" => kind.as_str())
}

/// Adds to the gauge of permits. Does nothing for other kinds.
fn permits(lock: Cow<'static, str>, kind: HoldKind, change: f64) {
    if kind == HoldKind::Semaphore {
        gauge!("distlock.permits.held", "lock" => lock).increment(change);
    }
}

/// Returns the label of a call without its lock. A call that ended with its manager or its outer
/// hold counts as dropped.
fn failure(outcome: AcquireFailure) -> &'static str {
    match outcome {
        AcquireFailure::ShutDown | AcquireFailure::Lost => AcquireFailure::Cancelled.as_str(),
        _ => outcome.as_str(),
    }
}

fn acquired(
    lock: Cow<'static, str>,
    kind: HoldKind,
    took: Duration,
    outcome: &'static str,
    path: &'static str,
) {
    no_longer_pending(lock.clone(), kind);
    histogram!(
        "distlock.acquire.duration",
        "lock" => lock, "kind" => kind.as_str(), "outcome" => outcome, "path" => path
    )
    .record(took);
}

fn no_longer_pending(lock: Cow<'static, str>, kind: HoldKind) {
    gauge!("distlock.acquire.pending", "lock" => lock, "kind" => kind.as_str()).decrement(1.0);
}

impl Observer for Metrics {
    fn observe(&self, event: &Event) {
        match event {
            Event::AcquireStarted { lock, kind, .. } => {
                let lock = self.label_of(lock.clone(), *kind);
                gauge!("distlock.acquire.pending", "lock" => lock, "kind" => kind.as_str())
                    .increment(1.0);
            }
            Event::Acquired {
                lock,
                kind,
                weight,
                waited,
                path,
                handoff,
                ..
            } => {
                let lock = self.label(lock.clone());
                acquired(lock.clone(), *kind, *waited, "acquired", path.as_str());
                if let Some(handoff) = handoff {
                    histogram!(
                        "distlock.handoff.duration",
                        "lock" => lock.clone(), "kind" => kind.as_str()
                    )
                    .record(*handoff);
                }
                if *path != AcquirePath::Reentered {
                    permits(lock.clone(), *kind, f64::from(*weight));
                    gauge!("distlock.locks.held", "lock" => lock, "kind" => kind.as_str())
                        .increment(1.0);
                }
            }
            Event::Skipped {
                lock, kind, reason, ..
            } => {
                let lock = self.label(lock.clone());
                // Such a call did not start.
                if *reason != SkipKind::RunIf {
                    no_longer_pending(lock.clone(), *kind);
                }
                counter!(
                    "distlock.skipped",
                    "lock" => lock, "kind" => kind.as_str(), "reason" => reason.as_str()
                )
                .increment(1);
            }
            Event::SuccessRecorded { lock, outcome, .. } => {
                let lock = self.label(lock.clone());
                counter!("distlock.success_records", "lock" => lock, "outcome" => outcome.as_str())
                    .increment(1);
            }
            Event::AcquireFailed {
                lock,
                kind,
                waited,
                outcome,
                ..
            } => {
                let (lock, outcome) = (self.label(lock.clone()), failure(*outcome));
                acquired(lock, *kind, *waited, outcome, "none");
            }
            Event::HoldEnded {
                lock,
                kind,
                weight,
                held,
                outcome,
                ..
            } => {
                let lock = self.label(lock.clone());
                permits(lock.clone(), *kind, -f64::from(*weight));
                let kind = kind.as_str();
                gauge!("distlock.locks.held", "lock" => lock.clone(), "kind" => kind)
                    .decrement(1.0);
                histogram!(
                    "distlock.hold.duration",
                    "lock" => lock, "kind" => kind, "outcome" => outcome.as_str()
                )
                .record(*held);
            }
            Event::Lost {
                lock,
                kind,
                reason,
                completed,
                ..
            } => {
                let lock = self.label(lock.clone());
                let counter = if *completed {
                    lost_after_completion(lock, *kind)
                } else {
                    lost(lock, *kind, reason)
                };
                counter.increment(1);
            }
            Event::Released {
                kind,
                took,
                outcome,
                ..
            } => {
                histogram!(
                    "distlock.release.duration",
                    "kind" => kind.as_str(), "outcome" => outcome.as_str()
                )
                .record(*took);
            }
            Event::Renewed {
                took,
                slack,
                failed,
                ..
            } => {
                counter!("distlock.renewal.failures")
                    .increment(u64::try_from(*failed).unwrap_or(u64::MAX));
                let outcome = event.renewal_outcome().map_or("ok", |it| it.as_str());
                histogram!("distlock.renewal.duration", "outcome" => outcome).record(*took);
                if let Some(slack) = slack {
                    histogram!("distlock.renewal.slack").record(*slack);
                }
            }
            Event::QueueInspected {
                lock, queue_length, ..
            } => {
                gauge!("distlock.queue.length", "lock" => self.label(lock.clone()))
                    .set(*queue_length as f64);
            }
            Event::CommandFinished {
                operation,
                took,
                outcome,
                ..
            } => {
                let (operation, outcome) = (operation.as_str(), outcome.as_str());
                histogram!("distlock.store.command.duration", "operation" => operation, "outcome" => outcome)
                    .record(*took);
            }
            Event::ConnectionUp {
                connection,
                address,
                downtime,
            } => {
                let (connection, server) = (connection.as_str(), address.to_string());
                gauge!("distlock.store.connections", "connection" => connection, "server" => server).increment(1.0);
                let again = u64::from(downtime.is_some());
                counter!("distlock.store.reconnects", "connection" => connection).increment(again);
                gauge!("distlock.store.unavailable", "server" => address.to_string())
                    .increment(0.0);
            }
            Event::StoreUnavailable { address, .. } => {
                gauge!("distlock.store.unavailable", "server" => address.to_string())
                    .increment(1.0);
            }
            Event::StoreAvailable { address, .. } => {
                gauge!("distlock.store.unavailable", "server" => address.to_string())
                    .decrement(1.0);
            }
            Event::ConnectionDown {
                connection,
                address,
            } => {
                let (connection, server) = (connection.as_str(), address.to_string());
                gauge!("distlock.store.connections", "connection" => connection, "server" => server).decrement(1.0);
            }
            Event::Lagged { skipped } => counter!("distlock.events.skipped").increment(*skipped),
            Event::Queued { .. } | Event::LongWait { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_limit_become_other() {
        let metrics = Metrics::new();
        let label = |name: &str| metrics.label(Cow::Owned(name.to_owned()));
        for n in 0..MAX_NAMES {
            let name = format!("orders:<{n}>");
            assert_eq!(label(&name), name);
        }
        for _ in 0..2 {
            assert_eq!(label("late:<id>"), OTHER);
            assert_eq!(label("orders:<7>"), "orders:<7>");
        }
    }

    #[test]
    fn buckets_grow_by_a_similar_factor() {
        for pair in BUCKETS.windows(2) {
            let factor = pair[1] / pair[0];
            assert!((2.9..=3.4).contains(&factor), "{pair:?}");
        }
        assert_eq!((BUCKETS[0], BUCKETS[BUCKETS.len() - 1]), (100e-6, 30.0));
        // `docs/operations/prometheus-alerts.yml` compares the slack with a second.
        assert!(BUCKETS.contains(&1.0));
    }
}
