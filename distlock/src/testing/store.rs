//! The store of [`TestLocks`](crate::testing::TestLocks): the memory store, with the outcomes that
//! a test sets.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::slice::from_ref;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use once_cell::sync::OnceCell;
use tokio::sync::Notify;

use crate::config::limits::Limits;
use crate::config::options::Options;
use crate::error::{Holder, Outage};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::manager::engine::core::Core;
use crate::manager::engine::table::Entry;
use crate::manager::engine::watch;
use crate::protocol::claim::Standing;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{
    Ask, AskReply, Look, LookReply, Occupant, Owner, Renewal, RenewalFailure, Renewed,
};
use crate::store::command::{Command, Inspect, Release, Reply, Revoke};
use crate::store::memory::MemoryStore;
use crate::store::{BoxFuture, EventSink, LockStore, Opened, StoreEvent, run};
use crate::testing::acquisition::Acquisition;
use crate::testing::loss::Loss;
use crate::testing::script::{Outcome, Rule, RuleId, Script, Subject, Target};
use crate::util::clock::{Clock, TokioClock};
use crate::util::mutex::lock;

/// The memory store behind a script.
pub(crate) struct TestStore {
    memory: MemoryStore,
    events: EventSink,
    /// A clock of its own, because the script exists before the manager.
    clock: TokioClock,
    /// Set once the manager exists. A store does not keep its manager alive.
    core: OnceCell<Weak<Core>>,
    state: Mutex<State>,
    /// Wakes tasks that wait for an acquisition.
    pub(crate) acquired: Notify,
}

#[derive(Debug, Default)]
struct State {
    script: Script,
    acquisitions: Vec<Acquisition>,
    /// The holds that are not released, also those whose claim has ended.
    holds: HashMap<Owner, TestHold>,
}

#[derive(Debug, Default)]
struct TestHold {
    label: Option<Cow<'static, str>>,
    not_renewed: Option<Cause>,
}

/// Why a hold is not renewed.
#[derive(Debug)]
enum Cause {
    Test,
    Rule(RuleId),
}

impl fmt::Debug for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestStore")
            .field("state", &*lock(&self.state))
            .finish_non_exhaustive()
    }
}

impl TestStore {
    pub(crate) fn open(memory: MemoryStore, events: EventSink) -> (Opened, Arc<Self>) {
        let identity = memory.identity().clone();
        let store = Arc::new(TestStore {
            memory,
            events,
            clock: TokioClock::new(),
            core: OnceCell::new(),
            state: Mutex::default(),
            acquired: Notify::new(),
        });
        let opened = Opened {
            store: Box::new(store.clone()),
            identity,
            address: Some("the test kit".into()),
            // Services set `min_replicas`, also in their tests.
            limits: Limits::default(),
            eviction: None,
        };
        (opened, store)
    }

    pub(crate) fn set_core(&self, core: &Arc<Core>) {
        // It is set once.
        let _ = self.core.set(Arc::downgrade(core));
    }

    fn core(&self) -> Option<Arc<Core>> {
        self.core.get().and_then(Weak::upgrade)
    }

    // Called by the test.

    pub(crate) fn add(
        &self,
        target: Target,
        left: Option<u32>,
        lasts: Option<Duration>,
        outcome: Outcome,
    ) {
        let until = lasts.map(|lasts| self.clock.now() + lasts);
        lock(&self.state).script.add(Rule {
            target,
            left,
            until,
            outcome,
        });
        if let (Some(lasts), Some(core)) = (lasts, self.core()) {
            let events = self.events.clone();
            core.spawn_while_open(async move {
                tokio::time::sleep(lasts).await;
                events(StoreEvent::Moved);
            });
        }
    }

    /// Removes the rules for a target, or all rules and what a test has lost.
    pub(crate) fn clear(&self, target: Option<&Target>) {
        {
            let State { script, holds, .. } = &mut *lock(&self.state);
            script.clear(target);
            for hold in holds.values_mut() {
                hold.not_renewed = hold.not_renewed.take().filter(|cause| match cause {
                    Cause::Test => target.is_some(),
                    Cause::Rule(id) => script.rule(*id).is_some(),
                });
            }
        }
        // Calls that wait because of a rule ask again at once.
        (self.events)(StoreEvent::Moved);
    }

    pub(crate) fn lose(self: &Arc<Self>, entry: &Arc<Entry>, how: Loss) {
        self.lose_by(entry, how, Cause::Test);
    }

    fn lose_by(self: &Arc<Self>, entry: &Arc<Entry>, how: Loss, cause: Cause) {
        let Some(core) = self.core() else { return };
        if how == Loss::NotRenewed {
            let mut state = lock(&self.state);
            state.holds.entry(entry.owner).or_default().not_renewed = Some(cause);
            return;
        }
        let (store, entry) = (self.clone(), entry.clone());
        core.clone().executor.spawn(async move {
            let timeout = entry.request.timing.command_deadline();
            if how == Loss::Revoked {
                let token = core.claims.peek(&entry, |claim| Some(claim.grip()?.token));
                if let Some(token) = token {
                    let revoke = Revoke {
                        key: &entry.request.key,
                        token,
                        deletes: false,
                    };
                    // The store notifies the holder, which is all that the test wants.
                    let _ = run(&store.memory, revoke, timeout).await;
                }
                return;
            }
            // As by a `DEL`: the next waiter has the lock from now on.
            let deleted = run(&store.memory, entry.release(Duration::ZERO), timeout).await;
            if deleted.is_ok() && how == Loss::Gone {
                let now = core.clock.now();
                let answer = Err(RenewalFailure::Gone);
                (core.claims).with(&entry, |claim| claim.handle_renewal(answer, now, now));
                watch::settle(&core, &entry);
            }
        });
    }

    pub(crate) fn acquisitions(&self) -> Vec<Acquisition> {
        lock(&self.state).acquisitions.clone()
    }

    /// Returns the holds of this moment.
    pub(crate) fn held(&self) -> Vec<Arc<Entry>> {
        let Some(core) = self.core() else {
            return Vec::new();
        };
        let now = core.clock.now();
        let mut held = core.claims.held();
        held.retain(|entry| {
            core.claims.peek(entry, |claim| {
                let believed = claim.grip().is_some_and(|grip| grip.belief.holds_at(now));
                claim.standing() == Standing::Held && believed
            })
        });
        held
    }

    // Called for commands.

    fn entry(&self, owner: Owner) -> Option<Arc<Entry>> {
        self.core()?.claims.find(owner)
    }

    /// Returns why no command can be sent for this lock now.
    fn outage_of(&self, key: Option<&LockKey>, owner: Option<Owner>) -> Option<Trouble> {
        let entry = owner.and_then(|owner| self.entry(owner));
        let state = lock(&self.state);
        let label = match &entry {
            Some(entry) => entry.request.options.label.as_deref(),
            None => owner.and_then(|owner| state.holds.get(&owner)?.label.as_deref()),
        };
        let outage = (state.script).outage(Subject { key, label }, self.clock.now())?;
        Some(trouble(outage))
    }

    /// Returns why a hold is not renewed.
    fn not_renewed(&self, owner: Owner, key: &LockKey, timeout: Duration) -> Option<Trouble> {
        let is_lost =
            (lock(&self.state).holds.get(&owner)).is_some_and(|hold| hold.not_renewed.is_some());
        if is_lost {
            return Some(Trouble::timed_out(timeout));
        }
        self.outage_of(Some(key), Some(owner))
    }

    /// Returns the reply to an ask if a rule sets it.
    fn ask(&self, ask: &Ask<'_>) -> Option<Result<AskReply, Trouble>> {
        let entry = self.entry(ask.owner);
        let options = entry.as_ref().map(|entry| &entry.request.options);
        let (state, now) = (lock(&self.state), self.clock.now());
        let rule = options.and_then(|options| state.script.rule(options.scripted?));
        match rule
            .filter(|rule| rule.is_in_force(now))
            .map(|rule| &rule.outcome)
        {
            Some(Outcome::Busy(holder)) => {
                let occupant = Some(occupant(holder));
                Some(Ok(if ask.wait.is_zero() {
                    AskReply::Busy(occupant)
                } else {
                    AskReply::Queued(occupant)
                }))
            }
            Some(Outcome::Foreign(detail)) => Some(Ok(AskReply::Foreign(detail.clone()))),
            Some(Outcome::Unavailable(outage)) => Some(Err(trouble(*outage))),
            Some(Outcome::Lost { .. } | Outcome::HoldLimit(_)) | None => {
                drop(state);
                self.outage_of(Some(ask.key), Some(ask.owner)).map(Err)
            }
        }
    }

    async fn renew(&self, batch: &[Renewal], timeout: Duration) -> Result<Renewed, Trouble> {
        let (mut failures, mut renewals, mut indices) = (Vec::new(), Vec::new(), Vec::new());
        for (index, renewal) in batch.iter().enumerate() {
            match self.not_renewed(renewal.owner, &renewal.key, timeout) {
                Some(trouble) => failures.push((index, RenewalFailure::Trouble(trouble))),
                None => {
                    renewals.push(renewal.clone());
                    indices.push(index);
                }
            }
        }
        let Renewed {
            sent,
            failures: more,
        } = run(&self.memory, &*renewals, timeout).await?;
        failures.extend(
            more.into_iter()
                .map(|(index, failure)| (indices[index], failure)),
        );
        Ok(Renewed { sent, failures })
    }

    async fn look(&self, looks: &[Look], timeout: Duration) -> Result<Vec<LookReply>, Trouble> {
        let mut replies = Vec::with_capacity(looks.len());
        for look in looks {
            match self.outage_of(Some(&look.key), look.owners.first().copied()) {
                Some(trouble) => replies.push(LookReply::Failed(trouble)),
                // A waiter for a holder that a rule names is in no queue: it is missing, and asks
                // again.
                None => replies.extend(run(&self.memory, from_ref(look), timeout).await?),
            }
        }
        Ok(replies)
    }
}

impl LockStore for Arc<TestStore> {
    fn call<'a>(
        &'a self,
        command: Command<'a>,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Reply, Trouble>> {
        Box::pin(async move {
            let outage = match command {
                Command::Ask(ask) => match self.ask(&ask) {
                    Some(reply) => return reply.map(Reply::Asked),
                    None => None,
                },
                Command::Renew(batch) => {
                    return self.renew(batch, timeout).await.map(Reply::Renewed);
                }
                Command::Look(looks) => return self.look(looks, timeout).await.map(Reply::Looked),
                Command::Confirm(confirm) => self.not_renewed(confirm.owner, confirm.key, timeout),
                Command::Release(Release { key, owner, .. }) => {
                    self.outage_of(Some(key), Some(owner))
                }
                Command::Inspect(Inspect { key, .. }) | Command::Revoke(Revoke { key, .. }) => {
                    self.outage_of(Some(key), None)
                }
                Command::List(_) => self.outage_of(None, None),
            };
            if let Some(outage) = outage {
                return Err(outage);
            }
            let mut reply = self.memory.call(command, timeout).await;
            match (command, &mut reply) {
                (Command::Release(release), _) => {
                    lock(&self.state).holds.remove(&release.owner);
                }
                (Command::Inspect(Inspect { key, .. }), Ok(Reply::Inspected(seen)))
                    if seen.occupant.is_none() =>
                {
                    let (key, label) = (Some(key), None);
                    let state = lock(&self.state);
                    let holder = (state.script).holder(Subject { key, label }, self.clock.now());
                    seen.occupant = holder.map(occupant);
                }
                _ => {}
            }
            reply
        })
    }

    fn begin(&self, key: &LockKey, mut options: Options) -> Options {
        let subject = Subject {
            key: Some(key),
            label: options.label.as_deref(),
        };
        let mut state = lock(&self.state);
        let met = state.script.meet(subject, self.clock.now());
        if let Some((id, outcome)) = met {
            if let Outcome::HoldLimit(limit) = outcome {
                options.max_hold = Some(*limit);
            }
            options.scripted = Some(id);
        }
        options
    }

    fn taken(&self, owner: Owner) {
        let (Some(core), Some(entry)) = (self.core(), self.entry(owner)) else {
            return;
        };
        let Some(grip) = core.claims.peek(&entry, |claim| claim.grip().cloned()) else {
            return;
        };
        let request = &entry.request;
        let label = &request.options.label;
        let mut state = lock(&self.state);
        state
            .holds
            .entry(owner)
            .or_default()
            .label
            .clone_from(label);
        state.acquisitions.push(Acquisition {
            key: request.key.to_string(),
            label: label.as_deref().map(str::to_owned),
            fencing_token: grip.token,
            waited: grip.since.since(request.started),
        });
        self.acquired.notify_waiters();
        let rule = |state: &State| {
            let id = request.options.scripted?;
            match state.script.rule(id)?.outcome {
                Outcome::Lost { after, how } => Some((id, after, how)),
                _ => None,
            }
        };
        if let Some((id, after, how)) = rule(&state) {
            let (store, entry) = (self.clone(), entry.clone());
            core.spawn_while_open(async move {
                tokio::time::sleep(after).await;
                let is_set = lock(&store.state).script.rule(id).is_some();
                if is_set && store.entry(owner).is_some() {
                    store.lose_by(&entry, how, Cause::Rule(id));
                }
            });
        }
    }

    fn close(&self) {
        self.memory.close();
    }
}

/// The error of a store that a rule makes unavailable.
fn trouble(outage: Outage) -> Trouble {
    Trouble::new(outage, "this test has the store answer so")
}

/// A holder that a rule names, as a store reports it.
fn occupant(holder: &Holder) -> Occupant {
    let micros = |time: SystemTime| {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
    };
    Occupant {
        ours: None,
        this_process: holder.this_process,
        // The token of an occupant is not shown, and it is above none.
        token: FencingToken::new(0),
        since: micros(holder.held_since),
        kept_until: holder.kept_until.map(micros),
        name: holder.client.clone(),
    }
}
