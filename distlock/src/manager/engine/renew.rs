//! Renewals, in batches of holds that are alike.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::options::Durability;
use crate::fencing::FencingToken;
use crate::manager::core::Core;
use crate::manager::core::held::HoldHandle;
use crate::manager::core::registry::RegistryEntry;
use crate::manager::engine::report;
use crate::manager::telemetry::logging::{self, TARGET};
use crate::observer::event::{Event, Operation};
use crate::observer::telemetry::Delivery;
use crate::protocol::acquisition::{Acquisition, AcquisitionState};
use crate::protocol::messages::{Renewal, RenewalFailure};
use crate::protocol::store_error::StoreError;
use crate::util::clock::BootInstant;

/// Upper limit of holds per batch. More would block a server for too long.
const RENEW_BATCH: usize = 500;

/// Starts the renewal of these holds.
pub(crate) fn start(core: &Arc<Core>, due: impl Iterator<Item = Arc<RegistryEntry>>) {
    let renewals = due.filter_map(DueRenewal::new).collect();
    for batch in batches(renewals) {
        core.executor.spawn(renew_batch(core.clone(), batch));
    }
}

/// Renews all holds at once, because renewals use a new connection now.
pub(crate) fn renew_all(core: &Core) {
    for entry in core.registry.held() {
        core.update(&entry, Acquisition::renew_now);
    }
}

/// A hold to be renewed.
#[derive(Clone, Debug)]
struct DueRenewal {
    entry: Arc<RegistryEntry>,
    token: FencingToken,
}

impl DueRenewal {
    fn new(entry: Arc<RegistryEntry>) -> Option<Self> {
        let token = entry.peek(|acquisition| Some(acquisition.hold()?.token))?;
        Some(DueRenewal { entry, token })
    }

    fn command(&self) -> Renewal<'_> {
        Renewal {
            target: self.entry.request.target(self.entry.owner),
            token: self.token,
        }
    }

    /// Returns what all holds of a batch have in common: the command timeout and the durability.
    fn batch_key(&self) -> (Duration, Durability) {
        let request = &self.entry.request;
        (
            request.timing().command_timeout(),
            request.options.durability(),
        )
    }
}

/// Returns batches of holds that are alike in this. The store needs a command for each script.
fn batches(mut holds: Vec<DueRenewal>) -> Vec<Vec<DueRenewal>> {
    holds.sort_unstable_by_key(DueRenewal::batch_key);
    holds
        .chunk_by(|a, b| a.batch_key() == b.batch_key())
        .flat_map(|alike| alike.chunks(RENEW_BATCH))
        .map(<[_]>::to_vec)
        .collect()
}

async fn renew_batch(core: Arc<Core>, holds: Vec<DueRenewal>) {
    let Some((timeout, _)) = holds.first().map(DueRenewal::batch_key) else {
        return;
    };
    let batch: Vec<_> = holds.iter().map(DueRenewal::command).collect();
    let started = core.clock.now();
    let renewing = core.store.renew(&batch, timeout);
    let reply = core.run_command(Operation::Renew, renewing).await;
    let now = core.clock.now();
    let (sent_at, failures) = match reply {
        Ok(renewed) => {
            if tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
                let (count, failures) = (holds.len(), renewed.failures.len());
                core.spawn_logging(move || logging::renewed(count, failures, now.since(started)));
            }
            (renewed.sent_at, renewed.failures)
        }
        Err(error) => {
            let failed = |index| (index, RenewalFailure::Error(error.clone()));
            (started, (0..holds.len()).map(failed).collect())
        }
    };
    let mut outcome = BatchOutcome::default();
    // By index, because a store may report failures in any order.
    let mut failures: HashMap<_, _> = failures.into_iter().collect();
    for (index, DueRenewal { entry, token }) in holds.into_iter().enumerate() {
        let failure = failures.remove(&index);
        let (reply, sent_at) = match failure {
            None => (Ok(()), sent_at),
            Some(failure) => (Err(failure), started),
        };
        outcome.record(&entry, &reply, now);
        core.registry.update(&entry, |acquisition| {
            acquisition.handle_renewal(reply, token, sent_at, now)
        });
        report::publish(&core, &entry);
    }
    core.telemetry
        .emit(Delivery::BestEffort, || Event::Renewed {
            holds: outcome.holds,
            failed: outcome.failed.len(),
            gone: outcome.lost,
            took: now.since(started),
            slack: outcome.slack,
        });
    log_failed(&core, &outcome.failed);
    log_slow(&core, &outcome.slow);
}

/// The results of one batch of renewals.
#[derive(Debug, Default)]
struct BatchOutcome {
    holds: usize,
    lost: usize,
    /// The shortest time that a hold had left when it was renewed.
    slack: Option<Duration>,
    failed: Vec<(Arc<RegistryEntry>, StoreError)>,
    /// Holds that had little time left.
    slow: Vec<(Arc<RegistryEntry>, Duration)>,
}

impl BatchOutcome {
    fn record(
        &mut self,
        entry: &Arc<RegistryEntry>,
        reply: &Result<(), RenewalFailure>,
        now: BootInstant,
    ) {
        self.holds += 1;
        match reply {
            Err(RenewalFailure::Gone | RenewalFailure::Revoked) => self.lost += 1,
            Err(RenewalFailure::Error(error)) => {
                self.failed.push((entry.clone(), error.clone()));
            }
            Ok(()) => {
                let Some(slack) = entry.peek(|acquisition| slack(acquisition, now)) else {
                    return;
                };
                self.slack = Some(self.slack.map_or(slack, |shortest| shortest.min(slack)));
                if slack < entry.request.timing().lease / 3 {
                    self.slow.push((entry.clone(), slack));
                }
            }
        }
    }
}

/// Returns how much time a hold had left when it was renewed at `now`. `None` if the hold has
/// ended, or is near its limit, where the value means nothing.
fn slack(acquisition: &Acquisition, now: BootInstant) -> Option<Duration> {
    let hold = acquisition.hold()?;
    let safe_until = hold.safe_until()?;
    let max_hold = acquisition.request().options.max_hold;
    let is_at_limit = max_hold.is_some_and(|max_hold| safe_until >= hold.since + max_hold);
    (!is_at_limit).then(|| safe_until.since(now))
}

/// Logs failed renewals, with the hold among them that will be lost first. Holds that are lost have
/// a line of their own.
fn log_failed(core: &Arc<Core>, failed: &[(Arc<RegistryEntry>, StoreError)]) {
    let entries = || failed.iter().map(|(entry, _)| entry);
    let Some(first_to_expire) = HoldHandle::first_to_expire(core, entries()) else {
        return;
    };
    let is_held =
        |entry: &&Arc<RegistryEntry>| entry.peek(Acquisition::state) == AcquisitionState::Held;
    let held = entries().filter(is_held).map(|entry| entry.owner);
    let first = &first_to_expire.entry;
    let in_last_third = first_to_expire.remaining() < first.request.timing().lease / 3;
    let now = core.clock.now();
    let Some(holds) = core.renewal_log.record_failed(held, in_last_third, now) else {
        return;
    };
    let store = core.address().unwrap_or_default().to_owned();
    let mut failures = failed.iter();
    let failure = failures.find(|(entry, _)| entry.owner == first.owner);
    let detail = failure.map_or_else(String::new, |(_, error)| error.to_string());
    core.spawn_logging(move || {
        logging::renewals_failed(&store, holds, &first_to_expire, &detail);
    });
}

/// Logs slow renewals, with the slowest of them.
fn log_slow(core: &Arc<Core>, slow: &[(Arc<RegistryEntry>, Duration)]) {
    let slowest = slow.iter().min_by_key(|(_, slack)| *slack);
    let hold = slowest.and_then(|(entry, slack)| Some((HoldHandle::of(core, entry)?, *slack)));
    if let Some((slowest, slack)) = hold
        && core.renewal_log.is_slow_line_due(core.clock.now())
    {
        let store = core.address().unwrap_or_default().to_owned();
        let slow = slow.len();
        core.spawn_logging(move || logging::renewals_slow(&store, slow, slack, &slowest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::options::Options;
    use crate::fencing::FencingToken;
    use crate::key::LockKey;
    use crate::protocol::kind::Kind;
    use crate::protocol::messages::{AcquireReply, Proof};
    use crate::protocol::request::Request;

    #[test]
    fn a_hold_near_its_limit_has_no_slack() {
        let (now, lease) = (BootInstant(0), Duration::from_secs(30));
        let slack_with = |max_hold| {
            let options = Options {
                lease: Some(lease),
                max_hold,
                ..Options::default()
            };
            let request = Request::new(LockKey::new("k").unwrap(), Kind::Mutex, options, now);
            let mut acquisition = Acquisition::new(Arc::new(request), None);
            acquisition.poll_action(false, now);
            let (sent_at, token) = (now, FencingToken::new(7));
            let held = AcquireReply::Held(Proof { sent_at, token });
            acquisition.handle_acquire_reply(Ok(held), now);
            slack(&acquisition, now)
        };
        let unlimited = slack_with(None);
        assert!(unlimited.is_some_and(|slack| slack > lease / 2));
        assert_eq!(slack_with(Some(lease * 2)), unlimited);
        assert_eq!(slack_with(Some(lease / 2)), None);
    }
}
