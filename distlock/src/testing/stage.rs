//! What the kit and its store share: the script, what has happened, and the way to the manager's
//! claims.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use once_cell::sync::OnceCell;
use tokio::sync::Notify;

use crate::config::options::Options;
use crate::error::{Holder, Outage};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::manager::engine::core::Core;
use crate::manager::engine::table::Entry;
use crate::manager::engine::watch;
use crate::protocol::claim::Standing;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Occupant, Owner, RenewalFailure};
use crate::store::command::{Revoke, run};
use crate::store::memory::MemoryStore;
use crate::store::{EventSink, StoreEvent};
use crate::testing::acquisition::Acquisition;
use crate::testing::loss::Loss;
use crate::testing::script::{Outcome, Rule, RuleId, Script, Subject, Target};
use crate::util::clock::{Clock, TokioClock};
use crate::util::mutex::lock;

/// What the kit and its store share.
pub(crate) struct Stage {
    pub(crate) store: MemoryStore,
    events: EventSink,
    /// The script's own, for it is there before the manager is.
    clock: TokioClock,
    /// Known once the manager is made. The manager is not kept alive by its store.
    core: OnceCell<Weak<Core>>,
    script: Mutex<Script>,
    acquisitions: Mutex<Vec<Acquisition>>,
    /// Of what was taken and is not released, also after its claim is over.
    labels: Mutex<HashMap<Owner, Cow<'static, str>>>,
    /// Wakes those who wait for an acquisition.
    pub(crate) acquired: Notify,
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage")
            .field("script", &*lock(&self.script))
            .finish_non_exhaustive()
    }
}

impl Stage {
    pub(crate) fn new(store: MemoryStore, events: EventSink) -> Arc<Self> {
        Arc::new(Stage {
            store,
            events,
            clock: TokioClock::new(),
            core: OnceCell::new(),
            script: Mutex::default(),
            acquisitions: Mutex::default(),
            labels: Mutex::default(),
            acquired: Notify::new(),
        })
    }

    /// From now on it knows whose store it is.
    pub(crate) fn open(&self, core: &Arc<Core>) {
        // It is opened once.
        let _ = self.core.set(Arc::downgrade(core));
    }

    fn core(&self) -> Option<Arc<Core>> {
        self.core.get().and_then(Weak::upgrade)
    }

    fn entry(&self, owner: Owner) -> Option<Arc<Entry>> {
        self.core()?.claims.find(owner)
    }

    // What the test says.

    pub(crate) fn add(
        &self,
        target: Target,
        left: Option<u32>,
        lasts: Option<Duration>,
        outcome: Outcome,
    ) {
        let until = lasts.map(|lasts| self.clock.now() + lasts);
        let rule = Rule {
            target,
            left,
            until,
            outcome,
        };
        lock(&self.script).add(rule);
        if let (Some(lasts), Some(core)) = (lasts, self.core()) {
            let events = self.events.clone();
            core.spawn_while_open(async move {
                tokio::time::sleep(lasts).await;
                events(StoreEvent::Moved);
            });
        }
    }

    pub(crate) fn clear(&self, target: Option<&Target>) {
        match target {
            Some(target) => lock(&self.script).clear(target),
            None => lock(&self.script).clear_all(),
        }
        // Whoever waits for what was cleared asks again at once.
        (self.events)(StoreEvent::Moved);
    }

    /// Has a hold lost.
    pub(crate) fn lose(self: &Arc<Self>, entry: &Arc<Entry>, how: Loss, because: Option<RuleId>) {
        let Some(core) = self.core() else { return };
        if how == Loss::NotRenewed {
            return lock(&self.script).renew_no_more(entry.owner, because);
        }
        let (stage, entry) = (self.clone(), entry.clone());
        core.clone().executor.spawn(async move {
            let request = &entry.request;
            let within = request.timing.command_deadline();
            if how == Loss::Revoked {
                let token = core.claims.peek(&entry, |claim| Some(claim.grip()?.token));
                if let Some(token) = token {
                    // The store tells the holder, which is all that is asked of it.
                    let revoke = Revoke {
                        key: &request.key,
                        token,
                        deletes: false,
                    };
                    let _ = run(&stage.store, revoke, within).await;
                }
                return;
            }
            // As by a `DEL`: whoever is the next has it from now on.
            let deleted = run(&stage.store, entry.release(Duration::ZERO), within).await;
            if deleted.is_ok() && how == Loss::Gone {
                let now = core.clock.now();
                let answer = Err(RenewalFailure::Gone);
                (core.claims).with(&entry, |claim| claim.handle_renewal(answer, now, now));
                watch::settle(&core, &entry);
            }
        });
    }

    // What calls meet.

    /// A call begins, and meets its outcome.
    pub(crate) fn begin(&self, key: &LockKey, mut options: Options) -> Options {
        let subject = Subject {
            key,
            label: options.label.as_deref(),
        };
        let mut script = lock(&self.script);
        let Some((id, outcome)) = script.meet(subject, self.clock.now()) else {
            return options;
        };
        if let Outcome::HoldLimit(limit) = outcome {
            options.max_hold = Some(*limit);
        }
        options.scripted = Some(id);
        options
    }

    /// The call has its lock.
    pub(crate) fn taken(self: &Arc<Self>, owner: Owner) {
        let (Some(core), Some(entry)) = (self.core(), self.entry(owner)) else {
            return;
        };
        let Some(grip) = core.claims.peek(&entry, |claim| claim.grip().cloned()) else {
            return;
        };
        let request = &entry.request;
        if let Some(label) = &request.options.label {
            lock(&self.labels).insert(owner, label.clone());
        }
        lock(&self.acquisitions).push(Acquisition {
            key: request.key.to_string(),
            label: request.options.label.as_deref().map(str::to_owned),
            fencing_token: grip.token,
            waited: grip.since.since(request.started),
        });
        self.acquired.notify_waiters();
        let Some(id) = request.options.scripted else {
            return;
        };
        let met = lock(&self.script).met(id).cloned();
        if let Some(Outcome::Lost { after, how }) = met {
            self.lose_later(&core, entry, after, how, id);
        }
    }

    fn lose_later(
        self: &Arc<Self>,
        core: &Arc<Core>,
        entry: Arc<Entry>,
        after: Duration,
        how: Loss,
        id: RuleId,
    ) {
        let stage = self.clone();
        core.spawn_while_open(async move {
            tokio::time::sleep(after).await;
            let is_set = lock(&stage.script).met(id).is_some();
            if is_set && stage.entry(entry.owner).is_some() {
                stage.lose(&entry, how, Some(id));
            }
        });
    }

    /// What an ask of this owner is answered, where the script says so.
    pub(crate) fn asked(&self, owner: Owner, key: &LockKey) -> Option<Outcome> {
        let entry = self.entry(owner);
        let now = self.clock.now();
        let script = lock(&self.script);
        let id = entry
            .as_ref()
            .and_then(|entry| entry.request.options.scripted);
        match id.and_then(|id| script.met_in_force(id, now)) {
            Some(outcome @ (Outcome::Busy(_) | Outcome::Unavailable(_) | Outcome::Foreign(_))) => {
                Some(outcome.clone())
            }
            _ => {
                let outage = script.outage(subject(key, entry.as_deref()), now);
                outage.map(Outcome::Unavailable)
            }
        }
    }

    /// Why nothing can be asked about this lock at this moment.
    pub(crate) fn outage(&self, key: &LockKey, owner: Option<Owner>) -> Option<Trouble> {
        let asking = owner.and_then(|owner| self.entry(owner));
        let asking = asking.and_then(|entry| entry.request.options.label.clone());
        let held = || lock(&self.labels).get(&owner?).cloned();
        let label = asking.or_else(held);
        let subject = Subject {
            key,
            label: label.as_deref(),
        };
        let outage = lock(&self.script).outage(subject, self.clock.now())?;
        Some(trouble(outage))
    }

    /// Why nothing at all can be asked at this moment.
    pub(crate) fn outage_of_all(&self) -> Option<Trouble> {
        let outage = lock(&self.script).outage_of_all(self.clock.now())?;
        Some(trouble(outage))
    }

    /// Nothing of this owner is left.
    pub(crate) fn released(&self, owner: Owner) {
        lock(&self.labels).remove(&owner);
    }

    /// Why a hold is not renewed.
    pub(crate) fn unrenewed(
        &self,
        owner: Owner,
        key: &LockKey,
        within: Duration,
    ) -> Option<Trouble> {
        if lock(&self.script).is_unrenewed(owner) {
            return Some(Trouble::timed_out(within));
        }
        self.outage(key, Some(owner))
    }

    /// Who has a lock, for those who only look.
    pub(crate) fn holder(&self, key: &LockKey) -> Option<Holder> {
        let script = lock(&self.script);
        let holder = script.holder(subject(key, None), self.clock.now());
        holder.cloned()
    }

    // What has happened.

    pub(crate) fn acquisitions(&self) -> Vec<Acquisition> {
        lock(&self.acquisitions).clone()
    }

    /// The holds of this moment.
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
}

fn subject<'a>(key: &'a LockKey, entry: Option<&'a Entry>) -> Subject<'a> {
    let label = entry.and_then(|entry| entry.request.options.label.as_deref());
    Subject { key, label }
}

/// What a store says that cannot be used.
pub(crate) fn trouble(outage: Outage) -> Trouble {
    Trouble::new(outage, "this test has the store answer so")
}

/// A holder that is not there, as the store says it.
pub(crate) fn occupant(holder: &Holder) -> Occupant {
    let micros = |time: SystemTime| {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
    };
    Occupant {
        ours: None,
        this_process: holder.this_process,
        // Nobody is told the token of an occupant, and it is above none.
        token: FencingToken::new(0),
        since: micros(holder.held_since),
        kept_until: holder.kept_until.map(micros),
        name: holder.client.clone(),
    }
}
