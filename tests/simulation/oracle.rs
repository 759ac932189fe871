//! What must always hold, checked whenever something happens.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::connections::Connections;
use super::time::WorldTime;
use super::trace::Trace;
use crate::__inside::simulation::faulty::{
    Answer, Applied, Fault, FaultyServer, Host, Millis, Network, Op, Witness,
};
use crate::clock::Clock;
use crate::error::Error;
use crate::key::LockKey;
use crate::manager::hold::Hold;
use crate::mutex::lock;
use crate::protocol::timing::{TICK, Timing};
use crate::protocol::words::{AskReply, Owner};
use crate::store::client_id::ClientId;
use crate::store::memory::hooks::{SeenHold, owner_text};

/// Timers count whole milliseconds, and one may begin within one.
const GRANULARITY: Duration = Duration::from_millis(2);

/// A pair of local and server time is believed for so long.
const FRESH: Duration = Duration::from_secs(1);

/// A script that the server has forgotten is loaded, and sent once more by hash and once by source, each with a deadline
/// of its own, which is at most this here.
const FLUSH_COSTS: Millis = 3 * 200;

/// And that may begin so long after it was forgotten.
const UNKNOWN_FOR: Millis = 1_000;

/// Sees everything, and knows what the clients cannot know.
pub(crate) struct Oracle {
    pub(crate) network: Arc<Network>,
    pub(crate) time: Arc<WorldTime>,
    state: Mutex<State>,
}

struct State {
    trace: Trace,
    clients: Vec<Known>,
    /// Who is believed to hold what.
    holds: Vec<(usize, Arc<Hold>)>,
    /// The last token of each key, and whether the server forgot it since.
    tokens: BTreeMap<LockKey, (u64, bool)>,
    /// Keys whose tokens started again: the server forgot them, and its clock had stepped back.
    inverted: BTreeSet<LockKey>,
    /// The highest token with which each key's resource was used.
    used: BTreeMap<LockKey, u64>,
    /// How an owner's hold was proven.
    /// Whom the server was asked for.
    owners: BTreeSet<(usize, Owner)>,
    proven: BTreeMap<(usize, Owner), &'static str>,
    /// Holds whose end somebody was told of.
    told: BTreeSet<Owner>,
    connections: Connections,
    /// When the server forgot its scripts.
    flushed: Option<Millis>,
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

/// A call that is under way.
pub(crate) struct Call {
    began: Millis,
    stopped_for: Millis,
}

impl Oracle {
    pub(crate) fn new(
        network: Arc<Network>,
        time: Arc<WorldTime>,
        old_connections_live: bool,
    ) -> Arc<Self> {
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
                told: BTreeSet::new(),
                used: BTreeMap::new(),
                proven: BTreeMap::new(),
                connections: Connections::new(old_connections_live),
                flushed: None,
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

    /// Each call has one owner id, and one more for each that it had to cancel.
    pub(crate) fn count_owners(&self) {
        let mut state = lock(&self.state);
        let owners = u64::try_from(state.owners.len()).unwrap();
        let calls = state.trace.counts.get("calls").copied().unwrap_or(0);
        let again = owners.saturating_sub(calls);
        state.trace.counts.insert("asked with a new id", again);
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

    /// A call for a lock came back: no later than it may.
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
        if (state.flushed).is_some_and(|when| when + UNKNOWN_FOR >= call.began) {
            limit += FLUSH_COSTS;
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
            state
                .trace
                .line(now, format_args!("c{client} is refused: {}", brief(error)));
        }
        if took > limit {
            state.trace.violated(
                now,
                format_args!("a call of c{client} took {took} ms, at most {limit} were allowed"),
            );
        }
    }

    /// A caller was given a hold. It may be over already, but if it is believed, it is the only one.
    pub(crate) fn acquired(&self, server: &FaultyServer, client: usize, hold: &Arc<Hold>) {
        let now = self.network.now();
        let mut state = lock(&self.state);
        let how = state.proven.get(&(client, hold.entry.owner)).copied();
        let how = how.unwrap_or("acquired: pushed");
        state.trace.count(how);
        state.trace.line(
            now,
            format_args!(
                "c{client} {how} {} #{} token {}",
                hold.key(),
                hold.entry.owner,
                hold.token()
            ),
        );
        let believed = state.is_believed(client, hold);
        if believed {
            self.check_server(&mut state, server, client, hold);
            let others: Vec<_> = (state.holds.iter())
                .filter(|(other, theirs)| {
                    theirs.key().same_lock(hold.key()) && state.is_believed(*other, theirs)
                })
                .cloned()
                .collect();
            for (other, theirs) in others {
                // The older one is the one that went wrong, or the server gave its lock away.
                if self.server_broke(&state, theirs.entry.request.timing) {
                    state.trace.count("excused: overlaps");
                    continue;
                }
                state.trace.violated(
                    now,
                    format_args!(
                        "c{client} #{} and c{other} #{} both believe to hold {}",
                        hold.entry.owner,
                        theirs.entry.owner,
                        hold.key()
                    ),
                );
            }
        }
        state.holds.push((client, hold.clone()));
    }

    /// A body does something with what the lock protects.
    pub(crate) fn step(&self, server: &FaultyServer, client: usize, hold: &Arc<Hold>) {
        let now = self.network.now();
        let mut state = lock(&self.state);
        state.trace.count("steps");
        if !state.is_believed(client, hold) {
            state.trace.violated(
                now,
                format_args!(
                    "the body of c{client} #{} goes on after validity",
                    hold.entry.owner
                ),
            );
        }
        self.check_server(&mut state, server, client, hold);
        let token = hold.token().get();
        let used = state.used.get(hold.key()).copied().unwrap_or(0);
        if token < used {
            if self.server_broke(&state, hold.entry.request.timing)
                || state.inverted.contains(hold.key())
            {
                state.trace.count("excused: older tokens");
            } else {
                state.trace.violated(
                    now,
                    format_args!("c{client} uses {} with {token} after {used}", hold.key()),
                );
            }
        }
        state.used.insert(hold.key().clone(), token.max(used));
    }

    /// A caller learned that its hold is over.
    pub(crate) fn told_of_end(&self, client: usize, hold: &Arc<Hold>) {
        let now = self.network.now();
        let mut state = lock(&self.state);
        state.trace.count("losses");
        state.trace.line(
            now,
            format_args!("c{client} lost {} #{}", hold.key(), hold.entry.owner),
        );
        let until = hold.believed_until();
        let late = state.clients[client].clock.now().since(until);
        // Whoever asks again is told again, whenever that is.
        let first = state.told.insert(hold.entry.owner);
        if first && until.0 != 0 && late > GRANULARITY && !state.is_disturbed(client, now) {
            state.trace.violated(
                now,
                format_args!(
                    "c{client} is told {late:?} too late of the loss of #{}",
                    hold.entry.owner
                ),
            );
        }
    }

    /// What a body returned was taken for a success.
    pub(crate) fn succeeded(&self, client: usize, hold: &Arc<Hold>, was_valid: bool) {
        if !was_valid {
            self.violated(format_args!(
                "c{client} #{} ended after validity, and the call says Ok",
                hold.entry.owner
            ));
        }
    }

    /// The hold is released, or dropped.
    pub(crate) fn gave_back(&self, client: usize, hold: &Arc<Hold>) {
        let mut state = lock(&self.state);
        state.holds.retain(|(_, held)| !Arc::ptr_eq(held, hold));
        state.trace.line(
            self.network.now(),
            format_args!("c{client} gives back {} #{}", hold.key(), hold.entry.owner),
        );
    }

    pub(crate) fn is_believed(&self, client: usize, hold: &Hold) -> bool {
        lock(&self.state).is_believed(client, hold)
    }

    /// Whoever believes to hold a lock has it in the server.
    fn check_server(
        &self,
        state: &mut State,
        server: &FaultyServer,
        client: usize,
        hold: &Arc<Hold>,
    ) {
        let there = server.snapshot(hold.key()).hold;
        let me = owner_text(&state.clients[client].id, hold.entry.owner);
        if let Some(there) = &there
            && there.owner == me
            && there.token == hold.token()
        {
            self.check_grace(state, client, hold, there.left);
            return;
        }
        if self.server_broke(state, hold.entry.request.timing) {
            state.trace.count("excused: holds without a lock");
            return;
        }
        state.trace.violated(
            self.network.now(),
            format_args!(
                "c{client} believes to hold {} as {me} token {}, and the server says {there:?}",
                hold.key(),
                hold.token()
            ),
        );
    }

    /// Whoever believes to hold a lock stops a grace before the server lets go of it: a belief counts from
    /// when its proof was asked for, and the server counts from later.
    fn check_grace(&self, state: &mut State, client: usize, hold: &Hold, left: Duration) {
        let Some(until) = hold.grip.belief.until() else {
            return;
        };
        let believed = until.since(state.clients[client].clock.now());
        let grace = hold.entry.request.timing.grant().grace();
        state.trace.count("beliefs compared");
        if believed.is_zero() || believed + grace <= left {
            return;
        }
        let since = (self.time.elapsed()).saturating_sub(hold.entry.request.timing.lease + FRESH);
        if (state.stepped_forward.iter()).any(|(when, _)| *when >= since) {
            state.trace.count("excused: long beliefs");
            return;
        }
        state.trace.violated(
            self.network.now(),
            format_args!(
                "c{client} believes to hold {} #{} for {believed:?}, and the server keeps it for {left:?}",
                hold.key(), hold.entry.owner
            ),
        );
    }

    /// Everything is over.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        let State {
            trace, connections, ..
        } = &mut *state;
        connections.end(self.network.now(), trace);
    }

    /// Compares what the server kept of a lock with what its holder believes of it.
    fn check_belief(&self, state: &mut State, key: &LockKey, there: &SeenHold) {
        let holder = (state.holds.iter()).find(|(client, hold)| {
            hold.key().same_lock(key)
                && hold.token() == there.token
                && owner_text(&state.clients[*client].id, hold.entry.owner) == there.owner
                && state.is_believed(*client, hold)
        });
        if let Some((client, hold)) = holder.cloned() {
            self.check_grace(state, client, &hold, there.left);
        }
    }

    /// Whether the server gave its word and broke it, within the life of a belief.
    fn server_broke(&self, state: &State, timing: Timing) -> bool {
        let now = self.time.elapsed();
        let since = |window: Duration| now.saturating_sub(window);
        let forgot = (state.forgot.iter()).any(|when| *when >= since(timing.lease));
        let stepped: Duration = (state.stepped_forward.iter())
            .filter(|(when, _)| *when >= since(timing.lease + FRESH))
            .map(|(_, by)| *by)
            .sum();
        forgot || stepped > timing.grant().grace()
    }
}

/// An error, without what depends on the real time.
pub(crate) fn brief(error: &Error) -> String {
    match error {
        Error::Busy { .. } => "busy".into(),
        error => error.to_string(),
    }
}

impl State {
    /// Whether a client believes in a hold at this moment. Asking the hold itself would end it.
    fn is_believed(&self, client: usize, hold: &Hold) -> bool {
        let known = &self.clients[client];
        !known.host.is_killed()
            && hold
                .grip
                .belief
                .until()
                .is_some_and(|until| known.clock.now() < until)
    }

    /// Whether a client could not know better: it was stopped, or its timers slept.
    fn is_disturbed(&self, client: usize, now: Millis) -> bool {
        let host = &self.clients[client].host;
        let within = |when: Option<Millis>, millis| when.is_some_and(|when| now <= when + millis);
        let tick = u64::try_from(TICK.as_millis()).unwrap();
        host.is_killed()
            || host.stopped_until().is_some()
            || within(host.went_on(), 2)
            || within(self.slept, tick + 2)
    }

    fn check_losses(&mut self, now: Millis) {
        let late: Vec<_> = (self.holds.iter())
            .filter(|(client, hold)| {
                let time = self.clients[*client].clock.now();
                hold.grip
                    .belief
                    .until()
                    .is_some_and(|until| time.since(until) > GRANULARITY)
                    && !self.is_disturbed(*client, now)
            })
            .map(|(client, hold)| (*client, hold.entry.owner))
            .collect();
        for (client, owner) in late {
            self.trace.violated(
                now,
                format_args!("nobody told c{client} of the loss of #{owner}"),
            );
        }
    }

    fn check_tokens(&mut self, now: Millis, key: &LockKey, hold: &SeenHold) {
        let token = hold.token.get();
        if let Some((last, forgotten)) = self.tokens.get(key)
            && token <= *last
        {
            if *forgotten && self.stepped_back {
                self.trace.count("excused: tokens");
                self.inverted.insert(key.clone());
            } else {
                let text = format!("{key} is given with {token} after {last}");
                self.trace.violated(now, format_args!("{text}"));
            }
        }
        self.tokens.insert(key.clone(), (token, false));
    }

    /// Who takes a free lock passes nobody who still waits.
    fn check_turn(&mut self, now: Millis, applied: &Applied<'_>, owner: Owner) {
        let me = owner_text(applied.id, owner);
        for (key, before, after) in &applied.effects {
            let passed = (before.queue.iter())
                .take_while(|entry| entry.owner != me)
                .find(|entry| after.queue.iter().any(|left| left.owner == entry.owner));
            if let Some(passed) = passed
                && before.hold.is_none()
            {
                self.trace.violated(
                    now,
                    format_args!("{me} passes {} in the queue of {key}", passed.owner),
                );
            }
        }
    }

    /// Nobody but its owner touches a lock, and only who may makes one.
    fn check_effect(
        &mut self,
        now: Millis,
        applied: &Applied<'_>,
        key: &LockKey,
        before: Option<&SeenHold>,
        after: Option<&SeenHold>,
    ) {
        let is = |hold: &SeenHold, owner: Owner| hold.owner == owner_text(applied.id, owner);
        let same = |a: &SeenHold, b: &SeenHold| a.owner == b.owner && a.token == b.token;
        let allowed = match (applied.op, before) {
            (Op::Renew(_) | Op::Confirm { .. }, None) => after.is_none(),
            (Op::Renew(batch), Some(before)) => {
                let mine = batch.iter().any(|renewal| {
                    renewal.key.same_lock(key)
                        && is(before, renewal.owner)
                        && before.token == renewal.token
                });
                after.is_some_and(|after| same(before, after) && (mine || after == before))
            }
            (Op::Confirm { owner, .. }, Some(before)) => after.is_some_and(|after| {
                same(before, after) && (is(before, *owner) || after == before)
            }),
            (Op::Release { owner, .. }, Some(before)) => {
                is(before, *owner) || after == Some(before)
            }
            (Op::Ask { owner, .. }, Some(before)) => after.is_some_and(|after| {
                same(before, after) && (is(before, *owner) || after.left <= before.left)
            }),
            (Op::Look(_), Some(before)) => {
                after.is_some_and(|after| same(before, after) && after.left <= before.left)
            }
            // A free lock may be taken, or given to who waits.
            (Op::Ask { .. } | Op::Release { .. } | Op::Look(_), None) => true,
        };
        if !allowed {
            self.trace.violated(
                now,
                format_args!(
                    "`{}` of c{} made {after:?} of {before:?}",
                    applied.op, applied.client
                ),
            );
        }
    }
}

impl Witness for Oracle {
    fn fault(&self, fault: Fault, client: Option<usize>, detail: fmt::Arguments<'_>) {
        let now = self.network.now();
        let mut state = lock(&self.state);
        state.trace.count(fault.name());
        state.connections.befell(now, client, fault);
        if fault == Fault::ScriptFlush {
            state.flushed = Some(now);
        }
        match client {
            Some(client) => state
                .trace
                .line(now, format_args!("! {fault:?} c{client}: {detail}")),
            None => state.trace.line(now, format_args!("! {fault:?}: {detail}")),
        }
    }

    fn unknown_script(&self) {
        self.count("unknown scripts");
    }

    fn goes_by(&self, client: usize, id: &ClientId) {
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

    fn note(&self, client: usize, detail: fmt::Arguments<'_>) {
        self.line(format_args!("c{client} {detail}"));
    }

    fn applied(&self, applied: &Applied<'_>) {
        let now = self.network.now();
        let client = applied.client;
        let mut state = lock(&self.state);
        state.trace.count("operations");
        state.trace.line(
            now,
            format_args!("c{client} {} -> {}", applied.op, applied.answer),
        );
        if let Op::Ask { owner, .. } = applied.op {
            state.owners.insert((client, *owner));
        }
        match (applied.op, applied.answer) {
            (Op::Ask { owner, .. }, Answer::Asked(AskReply::Held(_))) => {
                state.proven.insert((client, *owner), "acquired: asked");
            }
            (Op::Ask { .. }, Answer::Asked(AskReply::Late)) => state.trace.count("asks: late"),
            (Op::Confirm { owner, .. }, Answer::Confirmed(Some(_))) => {
                let proven = state.proven.entry((client, *owner));
                proven.or_insert("acquired: confirmed first");
            }
            (Op::Confirm { .. }, Answer::Confirmed(None)) => {
                state.trace.count("confirmations: refused");
            }
            (Op::Look(_), Answer::Looked(_)) => state.trace.count("looks"),
            _ => {}
        }
        let State {
            trace, connections, ..
        } = &mut *state;
        connections.applied(now, applied, trace);
        for (key, before, after) in &applied.effects {
            let (before, after) = (before.hold.as_ref(), after.hold.as_ref());
            if let Some(before) = before {
                self.check_belief(&mut state, key, before);
            }
            if let Some(after) = after
                && before
                    .is_none_or(|before| before.owner != after.owner || before.token != after.token)
            {
                state.check_tokens(now, key, after);
                if matches!(applied.op, Op::Release { .. }) {
                    state.trace.count("hand-offs");
                }
            }
            state.check_effect(now, applied, key, before, after);
        }
        if let (Op::Ask { owner, .. }, Answer::Asked(AskReply::Held(_))) =
            (applied.op, applied.answer)
        {
            state.check_turn(now, applied, *owner);
        }
        state.check_losses(now);
    }
}
