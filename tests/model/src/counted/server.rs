//! The server's scripts, branch by branch. A script is atomic unless it stops half-way.

use super::config::{READ, Request};
use super::state::{CALLS, Flag, Note, Phase, Record, State};
use super::steps::CountedLock;
use crate::explore::Claim;
use crate::tokens::Token;

/// The reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The call holds, with this token.
    Held(Token),
    Queued,
    /// There is no such hold, it is revoked, or the lock is in use as another kind.
    Rejected,
    Released,
}

impl State {
    fn dequeue(&mut self, call: usize) {
        self.queue.retain(|waiter| *waiter != call);
    }

    fn set_used(&mut self, used: u8) {
        self.used = used;
        if used == 0 {
            (self.capacity, self.phase_token, self.is_due) = (0, 0, false);
        }
    }
}

impl CountedLock {
    fn is_dead(&self, state: &State, call: usize, skips_silent: bool) -> bool {
        let client = self.clients[call];
        state.closed[client] || skips_silent && state.notes[client] == Some(Note::Expired)
    }

    fn is_other_kind(&self, state: &State, call: usize) -> bool {
        let held = Request::permits(0, state.capacity);
        state.capacity != 0 && !held.is_kind(self.requests[call])
    }

    fn has_room(&self, state: &State, call: usize) -> bool {
        let Request { weight, capacity } = self.requests[call];
        let is_own = self.rules.own_number || state.capacity == 0;
        state.used + weight <= if is_own { capacity } else { state.capacity }
    }

    /// Recounts the holders, if a record may have expired.
    fn sweep(&self, state: &mut State) {
        if state.is_due {
            let lives = |record: &Record| !record.expired;
            let live = state.records.map(|record| record.filter(lives));
            state.is_due = false;
            state.set_used(live.iter().flatten().map(|record| record.weight).sum());
            if self.rules.expired_is_absent {
                state.records = live;
            }
        }
    }

    /// Removes a holder. A script that stops after its first write leaves a sum that is too large.
    fn drop_record(&self, state: &mut State, call: usize, weight: u8, stops: bool) {
        let (record_first, used) = (self.rules.record_first, state.used.saturating_sub(weight));
        // Without other holders, one command deletes both.
        if !stops || record_first || used == 0 {
            state.records[call] = None;
        }
        if !stops || !record_first || used == 0 {
            state.set_used(used);
        }
    }

    fn token_for(&self, state: &mut State, is_reader: bool) -> Token {
        if is_reader && state.phase_token != 0 && self.rules.shared_token {
            return state.phase_token;
        }
        if !is_reader || self.rules.new_phase_token || state.fence == 0 {
            state.fence += 1;
        }
        state.phase_token = if is_reader { state.fence } else { 0 };
        state.fence
    }

    fn grant(&self, state: &mut State, call: usize, flag: Flag) {
        let (queue, request) = (state.queue, self.requests[call]);
        let mut earlier = queue.iter().take_while(|waiter| **waiter != call);
        let passes = earlier.any(|waiter| !self.is_dead(state, *waiter, true));
        state.violate_if(passes, Claim::InOrder);
        let token = self.token_for(state, request == READ);
        state.violate_if(token < state.newest, Claim::TokensRise);
        state.newest = token;
        if flag == Flag::Granted {
            let note = state.notes[self.clients[call]].replace(Note::Granted);
            state.violate_if(note == Some(Note::Expired), Claim::ServedAtOnce);
            state.calls[call].push = token;
        }
        state.dequeue(call);
        state.capacity = request.capacity;
        state.used += request.weight;
        let (weight, expired) = (request.weight, false);
        state.records[call] = Some(Record {
            flag,
            weight,
            token,
            expired,
        });
    }

    /// Grants to the head of the queue for as long as it fits, to `me` as to a holder.
    fn grant_next(&self, state: &mut State, me: usize) {
        while let Some(head) = state.queue.first().copied() {
            let is_dead = self.is_dead(state, head, self.rules.skips_silent);
            if is_dead && state.used > 0 && !self.rules.dead_heads_leave {
                return;
            } else if is_dead || self.is_other_kind(state, head) && self.rules.one_kind {
                state.dequeue(head);
            } else if self.has_room(state, head) {
                let is_me = head == me;
                self.grant(state, head, if is_me { Flag::Held } else { Flag::Granted });
                if is_me && !self.rules.acquire_serves_on {
                    return;
                }
            } else {
                let fits = |call: &usize| self.has_room(state, *call);
                let other = state.queue.into_iter().find(fits);
                if let Some(other) = other.filter(|_| !self.rules.head_only) {
                    self.grant(state, other, Flag::Granted);
                }
                return;
            }
        }
        state.notes = Default::default();
    }

    /// Checks what a script that serves must achieve. The next one removes a dead waiter of the
    /// client that sent this one.
    fn end(&self, state: &mut State, client: usize) {
        let head = state.queue.first().copied();
        if let Some(head) = head.filter(|head| self.clients[*head] != client) {
            let fits = self.has_room(state, head) && !self.is_other_kind(state, head);
            let is_dead = self.is_dead(state, head, self.rules.skips_silent);
            state.violate_if(fits || is_dead, Claim::ServedAtOnce);
        }
    }

    pub(crate) fn acquire(&self, state: &mut State, call: usize) -> Reply {
        let (rules, client) = (&self.rules, self.clients[call]);
        self.sweep(state);
        let waits = !state.queue.is_empty();
        let is_hold = |record: &&mut Record| record.flag != Flag::Revoked && rules.one_record;
        if let Some(record) = state.records[call].as_mut().filter(is_hold) {
            record.flag = Flag::Held;
            state.dequeue(call);
        }
        if waits {
            state.notes[client] = None;
            if rules.acquire_serves || state.used == 0 {
                self.grant_next(state, call);
            }
        }
        let may_pass = !rules.newcomers_last && self.requests[call] == READ;
        let may_take = state.queue.is_empty() || may_pass;
        let reply = match state.records[call] {
            Some(record) if record.flag == Flag::Held => Reply::Held(record.token),
            Some(record) if record.flag == Flag::Revoked => Reply::Rejected,
            _ if self.is_other_kind(state, call) && rules.one_kind => Reply::Rejected,
            _ if state.queue.contains(&call) => Reply::Queued,
            _ if may_take && self.has_room(state, call) => {
                self.grant(state, call, Flag::Held);
                Reply::Held(state.newest)
            }
            _ => {
                state.queue.push(call);
                Reply::Queued
            }
        };
        self.end(state, client);
        reply
    }

    pub(crate) fn release(&self, state: &mut State, call: usize, stops: bool) -> Reply {
        let (rules, client) = (&self.rules, self.clients[call]);
        self.sweep(state);
        let (was_queued, record) = (state.queue.contains(&call), state.records[call]);
        if let Some(record) = record {
            self.drop_record(state, call, record.weight, stops);
        } else if !rules.record_not_number && state.calls[call].token != 0 {
            self.drop_record(state, call, self.requests[call].weight, false);
        }
        if !stops {
            let serves = match record {
                Some(_) => state.used == 0 || rules.release_serves,
                None => !was_queued || rules.cancel_serves,
            };
            state.notes[client] = None;
            state.dequeue(call);
            if serves {
                self.grant_next(state, CALLS);
            }
            self.end(state, client);
        }
        Reply::Released
    }

    /// Confirms a grant, or renews the hold of `token`.
    pub(crate) fn extend(&self, state: &mut State, call: usize, token: Option<Token>) -> Reply {
        let rules = &self.rules;
        let is_hold = |record: &&mut Record| {
            token.is_none_or(|token| token == record.token)
                && !(record.expired && rules.expired_is_absent)
                && !(record.flag == Flag::Revoked && rules.revoked_ends)
        };
        let Some(record) = state.records[call].as_mut().filter(is_hold) else {
            return Reply::Rejected;
        };
        let (is_revoked, held) = (record.flag == Flag::Revoked, record.token);
        record.expired = false;
        if !is_revoked {
            record.flag = Flag::Held;
        }
        state.violate_if(is_revoked, Claim::Lifetime);
        if token.is_none() {
            state.notes[self.clients[call]] = None;
        }
        Reply::Held(held)
    }

    pub(crate) fn downgrade(&self, state: &mut State, call: usize) -> Reply {
        let (rules, client) = (&self.rules, self.clients[call]);
        self.sweep(state);
        let token = state.calls[call].write_token;
        let is_write = |record: &Record| record.weight == 1 || record.token == token;
        let is_hold = |record: &Record| record.flag != Flag::Revoked && is_write(record);
        let mut reply = Reply::Rejected;
        let mut serves = rules.failed_downgrade_serves;
        if let Some(mut record) = state.records[call].filter(is_hold) {
            if record.weight > 1 || !rules.downgrade_once {
                (state.used, record.weight) = (1, 1);
                if rules.new_downgrade_token {
                    state.fence += 1;
                    record.token = state.fence;
                }
                state.phase_token = record.token;
                state.newest = record.token.max(state.newest);
            }
            record.flag = Flag::Held;
            state.records[call] = Some(record);
            state.notes[client] = None;
            (reply, serves) = (Reply::Held(record.token), rules.downgrade_serves);
        }
        if serves {
            self.grant_next(state, CALLS);
        }
        self.end(state, client);
        reply
    }

    /// Serves the queue for a client. Its waiters confirm a grant, or acquire again if not queued.
    pub(crate) fn check_queue(&self, state: &mut State, client: usize) {
        self.sweep(state);
        state.notes[client] = None;
        if self.rules.check_serves {
            self.grant_next(state, CALLS);
        }
        self.end(state, client);
        for call in self.calls_of(client) {
            let (is_queued, record) = (state.queue.contains(&call), state.records[call]);
            let phase = &mut state.calls[call].phase;
            if *phase == Phase::Queued && !is_queued {
                *phase = record.map_or(Phase::Acquiring, |_| Phase::Confirming);
            }
        }
    }

    /// Revokes the holds of a token; `deletes` those of clients without a connection instead.
    pub(crate) fn revoke(&self, state: &mut State, token: Token, deletes: bool) {
        let rules = &self.rules;
        self.sweep(state);
        let (mut has_effect, mut gone) = (false, Vec::new());
        for (call, record) in state.records.iter_mut().enumerate() {
            for record in record.iter_mut().filter(|record| record.token == token) {
                let is_new = record.flag != Flag::Revoked;
                if deletes && state.closed[self.clients[call]] {
                    gone.push((call, record.weight));
                    has_effect |= is_new || !rules.deletes_once;
                } else if !deletes || rules.revokes_neighbors {
                    record.flag = Flag::Revoked;
                    has_effect |= is_new || !rules.revokes_once;
                }
            }
        }
        // A newer token would also reject the readers that came since the first revocation.
        if has_effect {
            state.fence += 1;
            // The operator reports the token to the resource.
            (state.seen, state.newest) = (state.fence, state.fence);
            if rules.revocation_ends_phase {
                state.phase_token = 0;
            }
        }
        for (call, weight) in gone {
            self.drop_record(state, call, weight, false);
        }
        if rules.revoke_serves {
            self.grant_next(state, CALLS);
        }
        self.end(state, CALLS);
    }
}
