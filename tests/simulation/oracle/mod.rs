//! Invariants, checked whenever something happens.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

mod beliefs;
mod effects;
mod losses;
mod shares;

use super::connections::Connections;
use super::time::WorldTime;
use super::trace::Trace;
use crate::__inside::simulation::faulty::{Answer, Applied, Fault, Host, Millis, Network, Op};
use crate::error::Error;
use crate::key::LockKey;
use crate::manager::core::held::HoldHandle;
use crate::protocol::messages::{AcquireReply, Confirmation, OwnerId};
use crate::protocol::timing::MAX_WATCHDOG_SLEEP;
use crate::store::client_id::ClientId;
use crate::util::clock::Clock;
use crate::util::sync::lock;

/// An observer of everything, with knowledge that the clients cannot have.
pub(crate) struct Oracle {
    pub(crate) network: Arc<Network>,
    pub(crate) time: Arc<WorldTime>,
    state: Mutex<State>,
}

struct State {
    trace: Trace,
    clients: Vec<Known>,
    /// The holds in use, with the client of each.
    holds: Vec<(usize, HoldHandle)>,
    /// The last token of each key, and whether the server has forgotten it since.
    tokens: BTreeMap<LockKey, (u64, bool)>,
    /// Keys with tokens that restarted: the server forgot them, and its clock had stepped back.
    inverted: BTreeSet<LockKey>,
    /// The highest token used with each key's resource.
    used: BTreeMap<LockKey, u64>,
    /// The owners for which an acquire was applied.
    owners: BTreeSet<(usize, OwnerId)>,
    /// How each owner's hold was proven.
    proven: BTreeMap<(usize, OwnerId), &'static str>,
    /// Owners with a body that succeeded, of calls that run at most once.
    successes: BTreeSet<(usize, OwnerId)>,
    /// Owners with a reported end of their hold.
    notified: BTreeSet<OwnerId>,
    connections: Connections,
    forgot: Vec<Duration>,
    stepped_forward: Vec<(Duration, Duration)>,
    stepped_back: bool,
    slept: Option<Millis>,
}

/// A client, as the oracle knows it.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) id: ClientId,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) host: Arc<Host>,
}

pub(crate) struct Call {
    began: Millis,
    stopped_for: Millis,
}

impl Oracle {
    pub(crate) fn new(network: Arc<Network>, time: Arc<WorldTime>) -> Arc<Self> {
        Arc::new(Oracle {
            network,
            time,
            state: Mutex::new(State {
                trace: Trace::new(),
                clients: Vec::new(),
                holds: Vec::new(),
                tokens: BTreeMap::new(),
                inverted: BTreeSet::new(),
                owners: BTreeSet::new(),
                successes: BTreeSet::new(),
                notified: BTreeSet::new(),
                used: BTreeMap::new(),
                proven: BTreeMap::new(),
                connections: Connections::default(),
                forgot: Vec::new(),
                stepped_forward: Vec::new(),
                stepped_back: false,
                slept: None,
            }),
        })
    }

    pub(crate) fn knows(&self, client: Known) {
        lock(&self.state).clients.push(client);
    }

    pub(crate) fn line(&self, detail: fmt::Arguments<'_>) {
        lock(&self.state).trace.line(self.network.now(), detail);
    }

    pub(crate) fn count(&self, what: &'static str) {
        lock(&self.state).trace.count(what);
    }

    /// Counts the owner ids beyond one per call. A call uses a new id after each that it cancelled.
    pub(crate) fn count_owners(&self) {
        let mut state = lock(&self.state);
        let owners = u64::try_from(state.owners.len()).unwrap();
        let calls = state.trace.counts.get("calls").copied().unwrap_or(0);
        let again = owners.saturating_sub(calls);
        state.trace.counts.insert("acquires: with a new id", again);
    }

    pub(crate) fn violated(&self, detail: fmt::Arguments<'_>) {
        lock(&self.state).trace.violated(self.network.now(), detail);
    }

    pub(crate) fn take_trace(&self) -> Trace {
        std::mem::replace(&mut lock(&self.state).trace, Trace::new())
    }

    pub(crate) fn forgot(&self) {
        let now = self.time.elapsed();
        let mut state = lock(&self.state);
        state.forgot.push(now);
        for (_, forgotten) in state.tokens.values_mut() {
            *forgotten = true;
        }
    }

    pub(crate) fn stepped(&self, millis: i64) {
        let now = self.time.elapsed();
        let mut state = lock(&self.state);
        if millis < 0 {
            state.stepped_back = true;
        } else {
            let by = Duration::from_millis(millis.unsigned_abs());
            state.stepped_forward.push((now, by));
        }
    }

    pub(crate) fn has_stepped_back(&self) -> bool {
        lock(&self.state).stepped_back
    }

    pub(crate) fn slept(&self) {
        lock(&self.state).slept = Some(self.network.now());
    }

    pub(crate) fn call(&self, client: usize) -> Call {
        let state = lock(&self.state);
        Call {
            began: self.network.now(),
            stopped_for: state.clients[client].host.stopped_for(),
        }
    }

    /// Checks that a call for a lock returned in time.
    pub(crate) fn called<T>(
        &self,
        client: usize,
        call: &Call,
        limit: Duration,
        result: Result<T, &Error>,
    ) {
        let now = self.network.now();
        let mut state = lock(&self.state);
        let stopped = state.clients[client].host.stopped_for() - call.stopped_for;
        let took = (now - call.began).saturating_sub(stopped);
        let mut limit = u64::try_from(limit.as_millis()).unwrap() + 10;
        // The driver notices a deadline late if its timer slept.
        let tick = u64::try_from(MAX_WATCHDOG_SLEEP.as_millis()).unwrap();
        if state.slept.is_some_and(|when| when + tick >= call.began) {
            limit += tick;
        }
        let what = match &result {
            Ok(_) => "calls: ok",
            Err(Error::Busy { .. }) => "calls: busy",
            Err(Error::Unavailable { .. }) => "calls: unavailable",
            Err(Error::Lost { .. }) => "calls: lost",
            Err(Error::ShutDown { .. }) => "calls: shut down",
            Err(_) => "calls: other errors",
        };
        state.trace.count(what);
        if let Err(error) = &result {
            let why = brief(error);
            (state.trace).line(now, format_args!("c{client} is refused: {why}"));
        }
        if took > limit {
            let text = format!("a call of c{client} took {took} ms, at most {limit} were allowed");
            state.trace.violated(now, format_args!("{text}"));
        }
    }

    /// Checks that a hold was valid when its body succeeded.
    pub(crate) fn succeeded(&self, client: usize, hold: &HoldHandle, was_valid: bool) {
        let owner = hold.entry.owner;
        if !was_valid {
            self.violated(format_args!("c{client} #{owner} is Ok after its validity"));
        }
    }

    /// Records that the body of a call that runs at most once succeeds.
    pub(crate) fn succeeds(&self, client: usize, hold: &HoldHandle) {
        let owner = hold.entry.owner;
        lock(&self.state).successes.insert((client, owner));
    }

    /// Records that a hold was released or dropped.
    pub(crate) fn gave_back(&self, client: usize, hold: &HoldHandle) {
        let mut state = lock(&self.state);
        (state.holds).retain(|(_, held)| !Arc::ptr_eq(&held.entry, &hold.entry));
        let (key, owner) = (hold.lock_key(), hold.entry.owner);
        let now = self.network.now();
        (state.trace).line(now, format_args!("c{client} gives back {key} #{owner}"));
    }

    pub(crate) fn is_believed(&self, client: usize, hold: &HoldHandle) -> bool {
        lock(&self.state).is_believed(client, hold)
    }

    /// Runs the checks that are due at the end.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        let State {
            trace, connections, ..
        } = &mut *state;
        connections.end(self.network.now(), trace);
    }
}

/// Returns the text of an error, without parts that depend on real time.
pub(crate) fn brief(error: &Error) -> String {
    match error {
        Error::Busy { .. } => "busy".into(),
        Error::AlreadyRan { .. } => "already ran".into(),
        error => error.to_string(),
    }
}

impl Oracle {
    /// Records a fault of a client, or of the server (`None`).
    pub(crate) fn fault(&self, fault: Fault, client: Option<usize>, detail: fmt::Arguments<'_>) {
        let now = self.network.now();
        let mut state = lock(&self.state);
        state.trace.count(fault.name());
        state.connections.record_fault(now, client, fault);
        let affected = client.map_or(String::new(), |client| format!(" c{client}"));
        (state.trace).line(now, format_args!("! {fault:?}{affected}: {detail}"));
    }

    /// Records that the server did not know, or had forgotten, a script.
    pub(crate) fn unknown_script(&self, is_forgotten: bool) {
        self.count(if is_forgotten {
            "unknown scripts"
        } else {
            "scripts: first used"
        });
    }

    /// Records that a client listens on a new connection, perhaps with a new id.
    pub(crate) fn goes_by(&self, client: usize, id: &ClientId) {
        let now = self.network.now();
        let mut state = lock(&self.state);
        state.connections.began(now, client);
        if state.clients[client].id == *id {
            return;
        }
        state.trace.count("renamed");
        (state.trace).line(now, format_args!("c{client} goes by another name"));
        state.clients[client].id = id.clone();
    }

    pub(crate) fn note(&self, client: usize, detail: fmt::Arguments<'_>) {
        self.line(format_args!("c{client} {detail}"));
    }

    pub(crate) fn applied(&self, applied: &Applied<'_>) {
        let now = self.network.now();
        let client = applied.client;
        let mut state = lock(&self.state);
        state.trace.count("operations");
        let (op, answer) = (applied.op, applied.answer);
        (state.trace).line(now, format_args!("c{client} {op:?} -> {answer:?}"));
        if matches!(op, Op::Acquire { .. } | Op::AcquireAll { .. }) {
            let owners = op.owners().into_iter().map(|owner| (client, owner));
            state.owners.extend(owners);
        }
        for owner in applied.holders() {
            let how = match op {
                Op::AcquireAll { .. } => "acquired: with others",
                _ => "acquired: in the reply",
            };
            state.proven.insert((client, owner), how);
        }
        match (applied.op, applied.answer) {
            (Op::Acquire { .. }, Answer::Acquired(AcquireReply::Late)) => {
                state.trace.count("acquires: late")
            }
            (Op::Confirm { owner, .. }, Answer::Confirmed(Confirmation::Held(_))) => {
                let proven = state.proven.entry((client, *owner));
                proven.or_insert("acquired: confirmed first");
            }
            (Op::Confirm { .. }, Answer::Confirmed(_)) => {
                state.trace.count("confirmations: refused");
            }
            (Op::CheckQueue(_), Answer::Checked(_)) => state.trace.count("queue checks"),
            (Op::Downgrade { owner, .. }, Answer::Downgraded(Some(_))) => {
                state
                    .proven
                    .insert((client, *owner), "acquired: by a downgrade");
            }
            (Op::Downgrade { .. }, Answer::Downgraded(None)) => {
                state.trace.count("downgrades: refused");
            }
            _ => {}
        }
        let State {
            trace, connections, ..
        } = &mut *state;
        connections.applied(now, applied, trace);
        for (key, before, after) in &applied.effects {
            state.check_record(now, applied, before, after);
            state.check_shares(now, applied, key, before, after);
            for (owner, token, _, left) in before.holds() {
                self.check_belief(&mut state, key, (owner, token, left));
            }
            let (before, after) = (before.hold.as_ref(), after.hold.as_ref());
            if let Some(after) = after
                && before
                    .is_none_or(|before| before.owner != after.owner || before.token != after.token)
            {
                state.check_tokens(now, key, after.token, false);
                if matches!(applied.op, Op::Release { .. }) {
                    state.trace.count("hand-offs");
                }
            }
            state.check_effect(now, applied, key, before, after);
        }
        for owner in applied.holders() {
            state.check_turn(now, applied, owner);
        }
        state.check_losses(now);
    }
}
