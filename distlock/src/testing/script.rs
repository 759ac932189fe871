//! The outcomes that a test has set, and what the calls of its manager did.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::{Holder, Outage};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::manager::core::held::HoldHandle;
use crate::manager::core::registry::RegistryEntry;
use crate::manager::core::{CallHook, Core};
use crate::manager::engine::events;
use crate::manager::engine::report;
use crate::protocol::messages::RevokeHolds;
use crate::protocol::messages::{OwnerId, RenewalFailure};
use crate::protocol::request::Request;
use crate::testing::loss::InjectedLoss;
use crate::testing::record::AcquireRecord;
use crate::util::sync::lock;

/// The number of an outcome. It is never reused.
pub(crate) type OutcomeId = usize;

/// The locks that an outcome applies to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OutcomeTarget {
    /// The key with its hash tag, which is the same for every way to write the key.
    Key(String),
    Label(String),
    All,
    /// No lock; the outcome is only used by its number.
    None,
}

/// What happens to a call that takes an outcome.
#[derive(Clone, Debug)]
pub(crate) enum ScriptedOutcome {
    Busy(Holder),
    AlreadyRan(SystemTime),
    Unavailable(Outage),
    KeyConflict(String),
    Lost { after: Duration, loss: InjectedLoss },
    MaxHold(Duration),
}

/// An outcome for up to `left` calls, until a deadline.
#[derive(Clone, Debug)]
pub(crate) struct SetOutcome {
    pub(crate) target: OutcomeTarget,
    /// `None` for all calls; an outage then also affects held locks.
    pub(crate) left: Option<u32>,
    pub(crate) until: Option<Instant>,
    pub(crate) outcome: ScriptedOutcome,
}

/// All outcomes in the order in which they were set; a call takes the first that applies to it. A
/// cleared outcome is `None`.
#[derive(Debug, Default)]
struct OutcomeList(Vec<Option<SetOutcome>>);

impl OutcomeTarget {
    pub(crate) fn key(key: &LockKey) -> Self {
        OutcomeTarget::Key(key.tagged().to_string())
    }

    /// Returns the targets of all outcomes that apply to this lock.
    pub(crate) fn of(key: Option<&LockKey>, label: Option<&str>) -> Vec<Self> {
        let label = label.map(|label| OutcomeTarget::Label(label.to_owned()));
        let all = [Some(OutcomeTarget::All), key.map(OutcomeTarget::key), label];
        all.into_iter().flatten().collect()
    }
}

impl SetOutcome {
    /// Returns true until the outcome's deadline. Ignores `left`, because a call keeps its outcome.
    fn is_in_force(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }

    fn is_for(&self, targets: &[OutcomeTarget]) -> bool {
        self.left != Some(0) && self.is_in_force() && targets.contains(&self.target)
    }
}

impl OutcomeList {
    fn add(&mut self, set: SetOutcome) -> OutcomeId {
        self.0.push(Some(set));
        self.0.len() - 1
    }

    /// Removes the outcomes for a target, or all outcomes.
    fn clear(&mut self, target: Option<&OutcomeTarget>) {
        for set in &mut self.0 {
            set.take_if(|set| target.is_none_or(|target| set.target == *target));
        }
    }

    /// Uses up one call of the first outcome for these targets, and returns the outcome's number.
    fn meet(&mut self, targets: &[OutcomeTarget]) -> Option<OutcomeId> {
        let is_for = |set: &Option<SetOutcome>| set.as_ref().is_some_and(|set| set.is_for(targets));
        let id = self.0.iter().position(is_for)?;
        let left = &mut self.0[id].as_mut()?.left;
        *left = left.map(|left| left - 1);
        Some(id)
    }

    /// Returns an outcome; `None` once it has been cleared.
    fn get(&self, id: OutcomeId) -> Option<&SetOutcome> {
        self.0.get(id)?.as_ref()
    }

    /// Returns the current outage, which affects every command for these targets.
    fn outage(&self, targets: &[OutcomeTarget]) -> Option<Outage> {
        self.in_force(targets).find_map(|set| match set.outcome {
            ScriptedOutcome::Unavailable(outage) if set.left.is_none() => Some(outage),
            _ => None,
        })
    }

    /// Returns the holder that an outcome names.
    fn holder(&self, targets: &[OutcomeTarget]) -> Option<&Holder> {
        self.in_force(targets).find_map(|set| match &set.outcome {
            ScriptedOutcome::Busy(holder) => Some(holder),
            _ => None,
        })
    }

    fn in_force(&self, targets: &[OutcomeTarget]) -> impl Iterator<Item = &SetOutcome> {
        let outcomes = self.0.iter().flatten();
        outcomes.filter(move |set| set.is_for(targets))
    }
}

/// The outcomes of a test, and the calls of its manager.
#[derive(Debug, Default)]
pub(crate) struct TestScript {
    state: Mutex<ScriptState>,
    /// Notified of every acquisition.
    pub(crate) acquired: Notify,
}

#[derive(Debug, Default)]
struct ScriptState {
    outcomes: OutcomeList,
    acquisitions: Vec<AcquireRecord>,
    /// The holds that have not been released, including those of acquisitions that have ended.
    holds: HashMap<OwnerId, Arc<RegistryEntry>>,
    /// The holds that are not renewed while their outcome is set.
    not_renewed: HashMap<OwnerId, OutcomeId>,
    /// The holds that the test deletes or revokes, even while an outcome makes the store unavailable.
    lost: HashSet<OwnerId>,
}

impl TestScript {
    pub(crate) fn add(&self, core: &Arc<Core>, set: SetOutcome) -> OutcomeId {
        if let Some(until) = set.until {
            let reacquiring = core.clone();
            core.spawn_while_open(async move {
                tokio::time::sleep_until(until).await;
                events::reacquire_now(&reacquiring);
            });
        }
        lock(&self.state).outcomes.add(set)
    }

    /// Removes the outcomes for a target, or all outcomes, including those of `TestLocks::lose`.
    pub(crate) fn clear(&self, core: &Core, target: Option<&OutcomeTarget>) {
        lock(&self.state).outcomes.clear(target);
        // Calls that wait because of an outcome are retried at once.
        events::reacquire_now(core);
    }

    pub(crate) fn acquisitions(&self) -> Vec<AcquireRecord> {
        lock(&self.state).acquisitions.clone()
    }

    /// Returns what happens by an outcome, unless it was cleared or its time is over.
    pub(crate) fn outcome_in_force(&self, id: OutcomeId) -> Option<ScriptedOutcome> {
        let state = lock(&self.state);
        let set = state.outcomes.get(id).filter(|set| set.is_in_force())?;
        Some(set.outcome.clone())
    }

    pub(crate) fn outage(&self, targets: &[OutcomeTarget]) -> Option<Outage> {
        lock(&self.state).outcomes.outage(targets)
    }

    pub(crate) fn holder(&self, targets: &[OutcomeTarget]) -> Option<Holder> {
        lock(&self.state).outcomes.holder(targets).cloned()
    }

    pub(crate) fn hold(&self, owner: OwnerId) -> Option<Arc<RegistryEntry>> {
        lock(&self.state).holds.get(&owner).cloned()
    }

    pub(crate) fn is_not_renewed(&self, owner: OwnerId) -> bool {
        let state = lock(&self.state);
        let set = state.not_renewed.get(&owner);
        set.is_some_and(|set| state.outcomes.get(*set).is_some())
    }

    /// Returns true if the test ends the hold of this owner.
    pub(crate) fn is_lost(&self, owner: OwnerId) -> bool {
        lock(&self.state).lost.contains(&owner)
    }

    /// Returns true if the test ends the hold with this token.
    pub(crate) fn is_token_lost(&self, token: FencingToken) -> bool {
        let state = lock(&self.state);
        let mut lost = state.lost.iter().filter_map(|owner| state.holds.get(owner));
        lost.any(|entry| {
            entry.peek(|acquisition| acquisition.hold().is_some_and(|hold| hold.token == token))
        })
    }

    /// Forgets a hold that is released.
    pub(crate) fn forget(&self, owner: OwnerId) {
        let mut state = lock(&self.state);
        state.holds.remove(&owner);
        state.lost.remove(&owner);
    }

    /// Ends a hold as an outcome says.
    pub(crate) async fn lose(&self, hold: HoldHandle, loss: InjectedLoss, set: OutcomeId) {
        let (core, entry) = (&hold.core, &hold.entry);
        if loss != InjectedLoss::NotRenewed {
            lock(&self.state).lost.insert(entry.owner);
        }
        let timeout = entry.request.timing().command_timeout();
        match loss {
            InjectedLoss::NotRenewed => {
                lock(&self.state).not_renewed.insert(entry.owner, set);
            }
            InjectedLoss::Revoked => {
                let revoke = RevokeHolds {
                    key: hold.lock_key(),
                    kind: entry.request.kind.lock_kind(),
                    tokens: &[hold.fencing_token()],
                    delete: false,
                };
                // The store notifies the holder, and the reply is not needed.
                let _ = core.store.revoke(&revoke, timeout).await;
                lock(&self.state).lost.remove(&entry.owner);
            }
            InjectedLoss::Gone | InjectedLoss::GoneSilently => {
                // As with a `DEL`, the next waiter has the lock from now on.
                let release = entry.request.release_command(entry.owner);
                let deleted = core.store.release(&release, timeout).await;
                if deleted.is_ok() && loss == InjectedLoss::Gone {
                    let answer = Err(RenewalFailure::Gone);
                    core.update(entry, |acquisition, now| {
                        acquisition.handle_renewal(answer, hold.fencing_token(), now, now)
                    });
                    report::publish(core, entry);
                }
            }
        }
    }
}

impl CallHook for Arc<TestScript> {
    fn begin(&self, mut request: Request) -> Request {
        let targets = OutcomeTarget::of(Some(&request.key), request.options.label.as_deref());
        let outcomes = &mut lock(&self.state).outcomes;
        request.outcome_id = outcomes.meet(&targets);
        let set = request.outcome_id.and_then(|id| outcomes.get(id));
        if let Some(ScriptedOutcome::MaxHold(limit)) = set.map(|set| &set.outcome) {
            request.options.max_hold = Some(*limit);
        }
        request
    }

    /// Records an acquisition, and starts the loss that an outcome sets for its hold.
    fn acquired(&self, core: &Arc<Core>, entry: &Arc<RegistryEntry>) {
        let Some(hold) = HoldHandle::of(core, entry) else {
            return;
        };
        let request = &entry.request;
        let mut state = lock(&self.state);
        state.holds.insert(entry.owner, entry.clone());
        state.acquisitions.push(AcquireRecord {
            key: hold.key().to_string(),
            label: request.options.label.as_deref().map(str::to_owned),
            kind: hold.kind().hold_kind(),
            fencing_token: hold.public_token(),
            waited: core.clock.now().since(request.started),
        });
        self.acquired.notify_waiters();
        let set = request
            .outcome_id
            .and_then(|id| Some((id, state.outcomes.get(id)?.outcome.clone())));
        if let Some((id, ScriptedOutcome::Lost { after, loss })) = set {
            let script = self.clone();
            core.spawn_while_open(async move {
                tokio::time::sleep(after).await;
                let is_set = lock(&script.state).outcomes.get(id).is_some();
                if is_set && hold.core.registry.find(hold.entry.owner).is_some() {
                    script.lose(hold, loss, id).await;
                }
            });
        }
    }
}
