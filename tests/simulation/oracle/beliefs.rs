//! The valid holds of a lock never exceed its capacity, and the server keeps each a grace longer.

use std::time::Duration;

use super::{Oracle, State};
use crate::__inside::simulation::faulty::FaultyServer;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::manager::core::held::HoldHandle;
use crate::protocol::kind::Kind;
use crate::protocol::timing::Timing;
use crate::store::memory::hooks::owner_text;
use crate::util::sync::lock;

/// How long a pair of local and server time is used.
const FRESH: Duration = Duration::from_secs(1);

impl Oracle {
    /// Checks a hold that a caller received. It may have ended; if valid, it must fit with the
    /// other valid ones.
    pub(crate) fn acquired(&self, server: &FaultyServer, client: usize, hold: &HoldHandle) {
        let now = self.network.now();
        let mut state = lock(&self.state);
        let how = state.proven.get(&(client, hold.entry.owner)).copied();
        let how = how.unwrap_or("acquired: pushed");
        state.trace.count(how);
        let kind = hold.kind();
        match kind {
            Kind::Mutex => {}
            Kind::Read => state.trace.count("counted: reads"),
            Kind::Write => state.trace.count("counted: writes"),
            Kind::Permits { .. } => state.trace.count("counted: permits"),
        }
        let (key, owner, token) = (hold.lock_key(), hold.entry.owner, hold.fencing_token());
        let line = format_args!("c{client} {how} {key} #{owner} token {token}");
        state.trace.line(now, line);
        let believed = state.is_believed(client, hold);
        if believed {
            self.check_server(&mut state, server, client, hold);
            let others: Vec<_> = (state.holds.iter())
                .filter(|(other, theirs)| {
                    theirs.lock_key().same_lock(hold.lock_key())
                        && state.is_believed(*other, theirs)
                })
                .cloned()
                .collect();
            if !others.is_empty() && kind != Kind::Mutex {
                state.trace.count("counted: several holds");
            }
            // The older hold's lease counts: it is at fault, or the server gave its lock away.
            let (sound, broken): (Vec<_>, Vec<_>) = others
                .into_iter()
                .partition(|(_, theirs)| !self.server_broke(&state, theirs.entry.request.timing()));
            let sum = |holds: &[(usize, HoldHandle)]| -> u32 {
                holds.iter().map(|(_, hold)| hold.kind().weight()).sum()
            };
            let (valid, mine) = (sum(&sound), kind.weight());
            // While numbers of permits differ, that of the last grant counts. A server that has
            // lost its data may give a token below those of the holds that it forgot.
            let newest = sound.iter().map(|(_, hold)| hold);
            let newest = newest.chain([hold]).max_by_key(|hold| hold.fencing_token());
            let capacity = newest.map_or(0, |newest| newest.kind().capacity());
            if capacity != kind.capacity() {
                state.trace.count("counted: other numbers");
            }
            if valid + mine > capacity {
                let theirs: Vec<_> = (sound.iter())
                    .map(|(other, theirs)| format!("c{other} #{}", theirs.entry.owner))
                    .collect();
                let theirs = theirs.join(" and ");
                let all =
                    format_args!("c{client} #{owner} and {theirs} hold {key}, {valid} + {mine}");
                state.trace.violated(now, all);
            } else if valid + sum(&broken) + mine > capacity {
                state.trace.count("excused: overlaps");
            }
        }
        state.holds.push((client, hold.clone()));
    }

    /// Checks a step in which a body uses the protected resource.
    pub(crate) fn step(&self, server: &FaultyServer, client: usize, hold: &HoldHandle) {
        let now = self.network.now();
        let mut state = lock(&self.state);
        state.trace.count("steps");
        let (key, owner) = (hold.lock_key(), hold.entry.owner);
        if !state.is_believed(client, hold) {
            let text = format_args!("the body of c{client} #{owner} goes on after validity");
            state.trace.violated(now, text);
        }
        self.check_server(&mut state, server, client, hold);
        // Permits do not exclude each other, so users see no token.
        let Some(token) = hold.public_token().map(FencingToken::get) else {
            return;
        };
        let used = state.used.get(key).copied().unwrap_or(0);
        if token < used {
            let timing = hold.entry.request.timing();
            if self.server_broke(&state, timing) || state.inverted.contains(key) {
                state.trace.count("excused: older tokens");
            } else {
                let text = format_args!("c{client} uses {key} with {token} after {used}");
                state.trace.violated(now, text);
            }
        }
        state.used.insert(key.clone(), token.max(used));
    }

    /// Checks that the server has the lock of a valid hold.
    fn check_server(
        &self,
        state: &mut State,
        server: &FaultyServer,
        client: usize,
        hold: &HoldHandle,
    ) {
        let there = server.snapshot(hold.lock_key());
        let me = owner_text(&state.clients[client].id, hold.entry.owner);
        let (mine, weight) = (hold.fencing_token(), hold.kind().weight());
        let mut holds = there.holds();
        let found =
            holds.find(|(owner, token, its, _)| *owner == me && *token == mine && *its == weight);
        if let Some((.., left)) = found {
            self.check_grace(state, client, hold, left);
            return;
        }
        if self.server_broke(state, hold.entry.request.timing()) {
            state.trace.count("excused: holds without a lock");
            return;
        }
        let (now, key, token) = (self.network.now(), hold.lock_key(), hold.fencing_token());
        let what = format!("c{client} believes to hold {key} as {me} token {token}");
        (state.trace).violated(now, format_args!("{what}, and the server says {there:?}"));
    }

    /// Checks that a hold ends a grace period before the server drops the lock. Validity counts
    /// from the request of the proof, and the server counts from later.
    fn check_grace(&self, state: &mut State, client: usize, hold: &HoldHandle, left: Duration) {
        let Some(safe_until) = hold.hold.safe_until() else {
            return;
        };
        let believed = safe_until.since(state.clients[client].clock.now());
        let grace = hold.entry.request.timing().short_grant_timing().grace();
        state.trace.count("beliefs compared");
        if believed.is_zero() || believed + grace <= left {
            return;
        }
        let since = (self.time.elapsed()).saturating_sub(hold.entry.request.timing().lease + FRESH);
        if (state.stepped_forward.iter()).any(|(when, _)| *when >= since) {
            state.trace.count("excused: long beliefs");
            return;
        }
        let (now, key, owner) = (self.network.now(), hold.lock_key(), hold.entry.owner);
        let what = format!("c{client} believes to hold {key} #{owner} for {believed:?}");
        (state.trace).violated(
            now,
            format_args!("{what}, and the server keeps it for {left:?}"),
        );
    }

    /// Compares the lock in the server with the belief of its holder.
    pub(super) fn check_belief(
        &self,
        state: &mut State,
        key: &LockKey,
        (owner, token, left): (&str, FencingToken, Duration),
    ) {
        let holder = (state.holds.iter()).find(|(client, hold)| {
            hold.lock_key().same_lock(key)
                && hold.fencing_token() == token
                && owner_text(&state.clients[*client].id, hold.entry.owner) == owner
                && state.is_believed(*client, hold)
        });
        if let Some((client, hold)) = holder.cloned() {
            self.check_grace(state, client, &hold, left);
        }
    }

    /// Returns true if, within the life of a belief, the server forgot locks or its clock stepped
    /// forward by more than the grace period.
    fn server_broke(&self, state: &State, timing: Timing) -> bool {
        let now = self.time.elapsed();
        let since = |window: Duration| now.saturating_sub(window);
        let forgot = (state.forgot.iter()).any(|when| *when >= since(timing.lease));
        let stepped: Duration = (state.stepped_forward.iter())
            .filter(|(when, _)| *when >= since(timing.lease + FRESH))
            .map(|(_, by)| *by)
            .sum();
        forgot || stepped > timing.short_grant_timing().grace()
    }
}

impl State {
    /// Returns true if a client considers a hold valid now. Reading the hold itself would end it.
    pub(super) fn is_believed(&self, client: usize, hold: &HoldHandle) -> bool {
        let known = &self.clients[client];
        let safe_until = hold.hold.safe_until();
        !known.host.is_killed() && safe_until.is_some_and(|at| known.clock.now() < at)
    }
}
