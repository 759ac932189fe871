//! The watchdog: renews all holds, in batches from one timer, and ends those that it cannot renew.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::options::Durability;
use crate::manager::engine::core::Core;
use crate::manager::engine::held::HeldLock;
use crate::manager::engine::release;
use crate::manager::engine::table::Entry;
use crate::manager::telemetry::report::{self, TARGET};
use crate::observer::event::Event;
use crate::observer::telemetry::Delivery;
use crate::protocol::acquisition::{Acquisition, AcquisitionState};
use crate::protocol::messages::{Renewal, RenewalFailure};
use crate::protocol::outcome::Action;
use crate::protocol::store_error::StoreError;
use crate::util::clock::Moment;

/// Upper limit of holds per script. More would block the server for too long.
const RENEW_BATCH: usize = 500;

/// Renews all holds, until the manager closes.
pub(crate) async fn keep_watch(core: Arc<Core>) {
    loop {
        let now = core.clock.now();
        let mut renewals = Vec::new();
        for entry in core.claims.due(now) {
            match core
                .claims
                .with(&entry, |acquisition| acquisition.poll_action(now))
            {
                Some(Action::Renew) => renewals.extend(Due::new(&core, entry)),
                Some(Action::Confirm { timeout }) => {
                    let core = core.clone();
                    core.clone().executor.spawn_later(async move {
                        let answer = core.call(entry.confirm(), timeout).await;
                        let now = core.clock.now();
                        (core.claims).with(&entry, |acquisition| {
                            acquisition.handle_confirmation(answer, now)
                        });
                        settle(&core, &entry);
                    });
                }
                // A hold never acquires, so without another action it has ended.
                Some(Action::Acquire { .. }) | None => settle(&core, &entry),
            }
        }
        for batch in batches(renewals) {
            core.executor.spawn_later(renew(core.clone(), batch));
        }
        let due = core.claims.due.notified();
        match core.claims.sleep(core.clock.now()) {
            // Whichever comes first.
            Some(sleep) => drop(tokio::time::timeout(sleep, due).await),
            None => due.await,
        }
    }
}

/// Renews all holds at once, because renewals use a new connection now.
pub(crate) fn renew_all(core: &Core) {
    let now = core.clock.now();
    for entry in core.claims.held() {
        core.claims
            .with(&entry, |acquisition| acquisition.renew_now(now));
    }
}

/// Reports a hold that was lost, and releases what it may have left in the store.
pub(crate) fn settle(core: &Arc<Core>, entry: &Arc<Entry>) {
    let (is_over, is_gone) = core.claims.with(entry, |acquisition| {
        (
            acquisition.state() == AcquisitionState::Ended,
            acquisition.poll_release(),
        )
    });
    if is_over {
        release::tell_loss(core, entry);
    }
    if is_gone {
        release::submit(core, entry);
    }
}

/// A hold to be renewed.
#[derive(Clone, Debug)]
struct Due {
    entry: Arc<Entry>,
    renewal: Renewal,
}

impl Due {
    fn new(core: &Core, entry: Arc<Entry>) -> Option<Self> {
        let token =
            (core.claims).peek(&entry, |acquisition| Some(acquisition.hold_info()?.token))?;
        let renewal = Renewal {
            key: entry.request.key.clone(),
            owner: entry.owner,
            token,
            timing: entry.request.timing,
            durability: entry.request.durability,
        };
        Some(Due { entry, renewal })
    }

    /// Returns what all holds of a batch have in common: the command timeout and the durability.
    fn kind(&self) -> (Duration, Durability) {
        let Renewal {
            timing, durability, ..
        } = &self.renewal;
        (timing.command_timeout(), *durability)
    }
}

/// Returns batches of holds of one kind, each small enough for one script.
fn batches(mut holds: Vec<Due>) -> Vec<Vec<Due>> {
    holds.sort_unstable_by_key(Due::kind);
    holds
        .chunk_by(|a, b| a.kind() == b.kind())
        .flat_map(|group| group.chunks(RENEW_BATCH))
        .map(<[_]>::to_vec)
        .collect()
}

async fn renew(core: Arc<Core>, holds: Vec<Due>) {
    let Some((timeout, _)) = holds.first().map(Due::kind) else {
        return;
    };
    let batch: Vec<_> = holds.iter().map(|due| due.renewal.clone()).collect();
    let started = core.clock.now();
    let answer = core.call(&*batch, timeout).await;
    let now = core.clock.now();
    let (sent, failures) = match answer {
        Ok(renewed) => {
            if tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
                let (count, failures) = (holds.len(), renewed.failures.len());
                core.report(move || report::renewed(count, failures, now.since(started)));
            }
            (renewed.sent, renewed.failures)
        }
        Err(trouble) => {
            let failed = |index| (index, RenewalFailure::Error(trouble.clone()));
            (started, (0..holds.len()).map(failed).collect())
        }
    };
    let mut seen = Seen::default();
    // By index, because a store may report failures in any order.
    let mut failures: HashMap<_, _> = failures.into_iter().collect();
    for (index, Due { entry, .. }) in holds.into_iter().enumerate() {
        let failure = failures.remove(&index);
        let (answer, sent) = match failure {
            None => (Ok(()), sent),
            Some(failure) => (Err(failure), started),
        };
        seen.note(&core, &entry, &answer, now);
        core.claims.with(&entry, |acquisition| {
            acquisition.handle_renewal(answer, sent, now)
        });
        settle(&core, &entry);
    }
    core.telemetry
        .emit(Delivery::BestEffort, || Event::Renewed {
            holds: seen.holds,
            failed: seen.refused.len(),
            gone: seen.gone,
            took: now.since(started),
            slack: seen.slack,
        });
    tell_trouble(&core, &seen);
}

/// The results of one batch of renewals.
#[derive(Debug, Default)]
struct Seen {
    holds: usize,
    gone: usize,
    /// The shortest time that a hold had left when it was renewed.
    slack: Option<Duration>,
    refused: Vec<(Arc<Entry>, StoreError)>,
    /// Holds that had little time left.
    slow: Vec<(Arc<Entry>, Duration)>,
}

impl Seen {
    fn note(
        &mut self,
        core: &Core,
        entry: &Arc<Entry>,
        answer: &Result<(), RenewalFailure>,
        now: Moment,
    ) {
        self.holds += 1;
        match answer {
            Err(RenewalFailure::Gone | RenewalFailure::Revoked) => self.gone += 1,
            Err(RenewalFailure::Error(trouble)) => {
                self.refused.push((entry.clone(), trouble.clone()));
            }
            Ok(()) => {
                let Some(slack) = core
                    .claims
                    .peek(entry, |acquisition| slack(&acquisition, now))
                else {
                    return;
                };
                self.slack = Some(self.slack.map_or(slack, |least| least.min(slack)));
                if slack < entry.request.timing.lease / 3 {
                    self.slow.push((entry.clone(), slack));
                }
            }
        }
    }
}

/// Returns how long a hold that is renewed now was still valid. `None` if the hold has ended, or is
/// near its limit, where the value means nothing.
fn slack(acquisition: &Acquisition, now: Moment) -> Option<Duration> {
    let grip = acquisition.hold_info()?;
    let until = grip.safe_deadline.valid_until()?;
    let limit = acquisition.request().options.max_hold;
    let is_limit = limit.is_some_and(|limit| until >= grip.since + limit);
    (!is_limit).then(|| until.since(now))
}

/// Logs failed and late renewals, with the hold among them that is lost first.
fn tell_trouble(core: &Arc<Core>, seen: &Seen) {
    if seen.refused.is_empty() && seen.slow.is_empty() {
        return;
    }
    let failed = seen.refused.iter().map(|(entry, _)| entry.owner);
    let slow = seen.slow.iter().map(|(entry, slack)| (entry.owner, *slack));
    let Some(failing) = core.renewals.trouble(failed, slow, core.clock.now()) else {
        return;
    };
    let refused = seen.refused.iter().map(|(entry, _)| entry);
    let nearest: Option<HeldLock> = if seen.refused.is_empty() {
        let slowest = seen.slow.iter().min_by_key(|(_, slack)| *slack);
        slowest.and_then(|(entry, _)| HeldLock::of(core, entry))
    } else {
        HeldLock::nearest(core, refused)
    };
    let Some(nearest) = nearest else {
        return;
    };
    let store = core.address().unwrap_or_default().to_owned();
    let trouble = seen.refused.first();
    let detail = trouble.map(|(_, trouble)| trouble.to_string());
    core.report(move || {
        report::renewals_fail(&store, failing, &nearest, &detail.unwrap_or_default());
    });
}
