//! Metrics of every manager, through the facade [`metrics`]: install an exporter, and there they
//! are.
//!
//! [docs/operations/observing.md](https://github.com/distlock/distlock/blob/main/docs/operations/observing.md)
//! has the table of all of them. Each manager records them from its first event on; calls and holds
//! are labelled by the name of their lock (`lock`: the template, or the label), never by the key,
//! and at most 500 names for each manager: further ones are `other`. All times are in seconds, and
//! histograms want [`BUCKETS`].
//!
//! ```
//! // At start-up, whichever the exporter is: here one that forgets all.
//! metrics::set_global_recorder(metrics::NoopRecorder).expect("it is the first");
//! let locks = distlock::LockManager::memory();
//! ```

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{
    Counter, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::observer::Observer;
use crate::observer::event::{Event, Loss, Path, Refused};

/// Bounds of histograms for all of these times, in seconds: from 100 µs to 30 s, two for each power
/// of ten.
///
/// An exporter writes each of them once for every lock and outcome. For the exporter of Prometheus:
/// `PrometheusBuilder::new().with_recommended_naming(true).set_buckets(distlock::metrics::BUCKETS)`,
/// because the shipped alerts and dashboard use the recommended names.
///
/// ```
/// assert!(distlock::metrics::BUCKETS.is_sorted());
/// ```
pub const BUCKETS: &[f64] = &[
    0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0,
];

/// So many names of locks are labels.
const MOST_NAMES: usize = 500;

/// The name of the rest.
const OTHER: &str = "other";

/// Says what each metric is, for a recorder that is installed after the first manager was made; for
/// the one that is there then it is done by the manager.
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
    describe_gauge!(
        "distlock.store.clock_offset",
        Unit::Seconds,
        "How far a server's clock is ahead of ours."
    );
}

/// Durations, in seconds.
const HISTOGRAMS: &[(&str, &str)] = &[
    (
        "distlock.acquire.duration",
        "From a call's beginning until it has its lock, or fails.",
    ),
    (
        "distlock.hold.duration",
        "From the acquisition of a lock until its hold is over.",
    ),
    (
        "distlock.handoff.duration",
        "From the server's grant of a lock that was handed on until its new holder has it.",
    ),
    (
        "distlock.renewal.duration",
        "The time in which a batch of renewals was answered.",
    ),
    (
        "distlock.renewal.slack",
        "For how long the hold of a batch that was nearest to its loss was still safe when it was renewed.",
    ),
    (
        "distlock.release.duration",
        "The time in which the first attempt of a release was answered.",
    ),
    (
        "distlock.store.call.duration",
        "The time in which the store answered a command.",
    ),
];

const GAUGES: &[(&str, &str)] = &[
    ("distlock.held", "Locks that are held."),
    (
        "distlock.waiting",
        "Calls that ask or wait for their locks.",
    ),
    (
        "distlock.queue.length",
        "How many waited for a lock, over all processes, when it was last inspected.",
    ),
    (
        "distlock.store.lost",
        "Whether a server cannot be used, as often as there are managers that need it.",
    ),
    ("distlock.store.up", "Connections to a server that are up."),
];

const COUNTERS: &[(&str, &str)] = &[
    (
        "distlock.lost",
        "Locks that were lost while they were held.",
    ),
    (
        "distlock.lost.after_completion",
        "Locks whose release found that they were gone, after their work had ended.",
    ),
    (
        "distlock.renewal.failures",
        "Renewals of single holds that failed, and are tried again.",
    ),
    (
        "distlock.store.reconnects",
        "Connections that were opened again.",
    ),
    (
        "distlock.missed",
        "Events that were told to no observer, these metrics among them.",
    ),
];

/// Records what happens.
pub(crate) struct Metrics {
    names: Mutex<BTreeSet<Cow<'static, str>>>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        describe();
        // There before anything is missed: a counter that appears does not rise.
        counter!("distlock.missed").increment(0);
        counter!("distlock.renewal.failures").increment(0);
        Metrics {
            names: Mutex::default(),
        }
    }

    /// The label of a lock. A name that was one stays one.
    fn label(&self, lock: Cow<'static, str>) -> Cow<'static, str> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.contains(&lock) {
            return lock;
        }
        let label = if names.len() < MOST_NAMES {
            lock
        } else {
            Cow::Borrowed(OTHER)
        };
        if names.insert(label.clone()) {
            // There before the first loss: a counter that begins with it does not rise, and nobody
            // is called.
            for reason in [Loss::Expired, Loss::Gone, Loss::Revoked, Loss::Closed] {
                lost(label.clone(), reason).increment(0);
            }
            lost_after_completion(label.clone()).increment(0);
        }
        label
    }
}

fn lost(lock: Cow<'static, str>, reason: Loss) -> Counter {
    counter!("distlock.lost", "lock" => lock, "reason" => reason.as_str())
}

fn lost_after_completion(lock: Cow<'static, str>) -> Counter {
    counter!("distlock.lost.after_completion", "lock" => lock)
}

/// The outcome of a call that did not get its lock: what its manager or the hold around it cut
/// short is like a call that was dropped.
fn refusal(outcome: Refused) -> &'static str {
    match outcome {
        Refused::Closed | Refused::Lost => Refused::Cancelled.as_str(),
        _ => outcome.as_str(),
    }
}

fn acquired(lock: Cow<'static, str>, took: Duration, outcome: &'static str, path: &'static str) {
    gauge!("distlock.waiting", "lock" => lock.clone()).decrement(1.0);
    histogram!("distlock.acquire.duration", "lock" => lock, "outcome" => outcome, "path" => path)
        .record(took);
}

impl Observer for Metrics {
    fn observe(&self, event: &Event) {
        match event {
            Event::Asking { lock, .. } => {
                gauge!("distlock.waiting", "lock" => self.label(lock.clone())).increment(1.0);
            }
            Event::Acquired {
                lock,
                waited,
                path,
                handoff,
                ..
            } => {
                let lock = self.label(lock.clone());
                acquired(lock.clone(), *waited, "acquired", path.as_str());
                if let Some(handoff) = handoff {
                    histogram!("distlock.handoff.duration", "lock" => lock.clone())
                        .record(*handoff);
                }
                if *path != Path::Reentered {
                    gauge!("distlock.held", "lock" => lock).increment(1.0);
                }
            }
            Event::NotAcquired {
                lock,
                waited,
                outcome,
                ..
            } => acquired(self.label(lock.clone()), *waited, refusal(*outcome), "none"),
            Event::Ended {
                lock,
                held,
                outcome,
                ..
            } => {
                let lock = self.label(lock.clone());
                gauge!("distlock.held", "lock" => lock.clone()).decrement(1.0);
                histogram!("distlock.hold.duration", "lock" => lock, "outcome" => outcome.as_str())
                    .record(*held);
            }
            Event::Lost {
                lock,
                reason,
                completed,
                ..
            } => {
                let lock = self.label(lock.clone());
                let counter = if *completed {
                    lost_after_completion(lock)
                } else {
                    lost(lock, *reason)
                };
                counter.increment(1);
            }
            Event::Released { took, outcome, .. } => {
                histogram!("distlock.release.duration", "outcome" => outcome.as_str())
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
            Event::QueueSeen { lock, waiters, .. } => {
                gauge!("distlock.queue.length", "lock" => self.label(lock.clone()))
                    .set(*waiters as f64);
            }
            Event::StoreCalled {
                operation,
                took,
                outcome,
                ..
            } => {
                let (op, outcome) = (operation.as_str(), outcome.as_str());
                histogram!("distlock.store.call.duration", "op" => op, "outcome" => outcome)
                    .record(*took);
            }
            Event::LinkUp { link, address, gap } => {
                let (link, node) = (link.as_str(), address.to_string());
                gauge!("distlock.store.up", "link" => link, "node" => node).increment(1.0);
                let again = u64::from(gap.is_some());
                counter!("distlock.store.reconnects", "link" => link).increment(again);
                gauge!("distlock.store.lost", "node" => address.to_string()).increment(0.0);
            }
            Event::StoreLost { address, .. } => {
                gauge!("distlock.store.lost", "node" => address.to_string()).increment(1.0);
            }
            Event::StoreBack { address, .. } => {
                gauge!("distlock.store.lost", "node" => address.to_string()).decrement(1.0);
            }
            Event::LinkDown { link, address } => {
                let (link, node) = (link.as_str(), address.to_string());
                gauge!("distlock.store.up", "link" => link, "node" => node).decrement(1.0);
            }
            Event::ClockOffset { address, seconds } => {
                gauge!("distlock.store.clock_offset", "node" => address.to_string()).set(*seconds);
            }
            Event::Missed { events } => counter!("distlock.missed").increment(*events),
            Event::Queued { .. } | Event::WaitingLong { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_names_and_each_stays_what_it_was() {
        let metrics = Metrics::new();
        let label = |name: &str| metrics.label(Cow::Owned(name.to_owned()));
        for n in 0..MOST_NAMES {
            let name = format!("orders:<{n}>");
            assert_eq!(label(&name), name);
        }
        for _ in 0..2 {
            assert_eq!(label("late:<id>"), OTHER);
            assert_eq!(label("orders:<7>"), "orders:<7>");
        }
    }

    #[test]
    fn buckets_grow_by_about_as_much_each() {
        for pair in BUCKETS.windows(2) {
            let factor = pair[1] / pair[0];
            assert!((2.9..=3.4).contains(&factor), "{pair:?}");
        }
        assert_eq!((BUCKETS[0], BUCKETS[BUCKETS.len() - 1]), (100e-6, 30.0));
        // `docs/operations/prometheus-alerts.yml` compares the slack with a second.
        assert!(BUCKETS.contains(&1.0));
    }
}
