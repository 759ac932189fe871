//! The server's scripts, branch by branch. A script is atomic unless it stops half-way.

use super::config::Request;
use super::state::{Flag, Note, Record, Server, State};
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

impl Server {
    pub(crate) fn is_queued(&self, call: usize) -> bool {
        self.queue.contains(&(call as u8))
    }

    fn head(&self) -> Option<usize> {
        self.queue.first().map(|call| usize::from(*call))
    }

    fn dequeue(&mut self, call: usize) {
        self.queue.retain(|waiter| usize::from(*waiter) != call);
    }

    fn set_used(&mut self, used: u8) {
        self.used = used;
        if used == 0 {
            (self.capacity, self.phase, self.is_due) = (0, 0, false);
        }
    }
}

/// A script that runs.
pub(crate) struct Script<'a> {
    pub(crate) lock: &'a CountedLock,
    pub(crate) state: &'a mut State,
    /// The client of the command, or `None` for an operator's.
    pub(crate) caller: Option<usize>,
}

impl Script<'_> {
    fn server(&mut self) -> &mut Server {
        &mut self.state.server
    }

    fn record(&mut self, call: usize) -> &mut Option<Record> {
        &mut self.state.server.records[call]
    }

    fn note(&mut self, call: usize) -> &mut Option<Note> {
        &mut self.state.server.notes[self.lock.client(call)]
    }

    fn note_caller(&mut self) {
        if let Some(client) = self.caller {
            self.server().notes[client] = None;
        }
    }

    /// Returns true if the waiter has a connection, and no grant to its client has just expired.
    fn is_answering(&self, call: usize, skips_silent: bool) -> bool {
        let (client, server) = (self.lock.client(call), &self.state.server);
        (!server.closed[client] || self.caller == Some(client))
            && !self.state.calls[call].overdue
            && !(skips_silent && server.notes[client] == Some(Note::Expired))
    }

    fn is_dead(&self, call: usize) -> bool {
        !self.is_answering(call, self.lock.rules.skips_silent)
    }

    fn is_other_kind(&self, call: usize) -> bool {
        ![0, self.lock.request(call).capacity].contains(&self.state.server.capacity)
    }

    fn has_room(&self, call: usize) -> bool {
        let Request { weight, capacity } = self.lock.request(call);
        self.state.server.used + weight <= capacity
    }

    /// Recounts the holders, if a record may have expired.
    fn sweep(&mut self) {
        let (removes, server) = (self.lock.rules.expired_is_absent, &mut self.state.server);
        if server.is_due {
            let lives = |record: &Record| !record.expired;
            let live = server.records.map(|record| record.filter(lives));
            server.is_due = false;
            server.set_used(live.iter().flatten().map(|record| record.weight).sum());
            if removes {
                server.records = live;
            }
        }
    }

    /// Removes a holder. A script that stops after its first write leaves a sum that is too large.
    fn drop_record(&mut self, call: usize, weight: u8, stops: bool) {
        let record_first = self.lock.rules.record_first;
        let used = self.server().used.saturating_sub(weight);
        // Without other holders, one command deletes both.
        if !stops || record_first || used == 0 {
            *self.record(call) = None;
        }
        if !stops || !record_first || used == 0 {
            self.server().set_used(used);
        }
    }

    fn token_for(&mut self, is_reader: bool) -> Token {
        let (rules, server) = (&self.lock.rules, &mut self.state.server);
        if is_reader && server.phase != 0 && rules.shared_token {
            return server.phase;
        }
        if !is_reader || rules.new_phase_token || server.fence == 0 {
            server.fence += 1;
        }
        server.phase = if is_reader { server.fence } else { 0 };
        server.fence
    }

    fn grant(&mut self, call: usize, flag: Flag) {
        let queue = self.server().queue;
        let waiters = queue.iter().map(|waiter| usize::from(*waiter));
        let mut earlier = waiters.take_while(|waiter| *waiter != call);
        let passes = earlier.any(|waiter| self.is_answering(waiter, true));
        self.state.violate(Claim::InOrder, passes);
        let request = self.lock.request(call);
        let token = self.token_for(request == Request::READ);
        let falls = token < self.state.newest;
        self.state.violate(Claim::TokensRise, falls);
        self.state.newest = token;
        if flag == Flag::Granted {
            let is_silent = self.note(call).replace(Note::Granted) == Some(Note::Expired);
            self.state.violate(Claim::ServedAtOnce, is_silent);
            self.state.calls[call].push = token;
        }
        let server = self.server();
        server.dequeue(call);
        server.capacity = request.capacity;
        server.used += request.weight;
        *self.record(call) = Some(Record {
            flag,
            weight: request.weight,
            token,
            expired: false,
        });
    }

    /// Grants to the head of the queue for as long as it fits, to `me` as to a holder.
    fn grant_next(&mut self, me: Option<usize>) {
        let rules = &self.lock.rules;
        while let Some(head) = self.server().head() {
            let is_dead = self.is_dead(head);
            if is_dead && self.server().used > 0 && !rules.dead_heads_leave {
                return;
            } else if is_dead || self.is_other_kind(head) && rules.one_kind {
                self.server().dequeue(head);
            } else if self.has_room(head) {
                let flags = [Flag::Granted, Flag::Held];
                self.grant(head, flags[usize::from(me == Some(head))]);
                if me == Some(head) && !rules.acquire_serves_on {
                    return;
                }
            } else {
                let queue = self.server().queue;
                let mut waiters = queue.iter().map(|waiter| usize::from(*waiter));
                let other = waiters.find(|other| !self.is_dead(*other) && self.has_room(*other));
                if let Some(other) = other.filter(|_| !rules.head_only) {
                    self.grant(other, Flag::Granted);
                }
                return;
            }
        }
        self.server().notes = Default::default();
    }

    /// Checks what a script that serves must achieve. The next one removes a dead waiter of the
    /// caller's.
    fn end(&mut self) {
        let caller = self.caller;
        let head = self.server().head();
        if let Some(head) = head.filter(|head| Some(self.lock.client(*head)) != caller) {
            let fits = self.has_room(head) && !self.is_other_kind(head);
            let is_dead = self.is_dead(head);
            self.state.violate(Claim::ServedAtOnce, fits || is_dead);
        }
    }

    pub(crate) fn acquire(&mut self, call: usize) -> Reply {
        let rules = &self.lock.rules;
        self.sweep();
        let waits = self.server().head().is_some();
        let is_hold = |record: &&mut Record| record.flag != Flag::Revoked && rules.one_record;
        if let Some(record) = self.record(call).as_mut().filter(is_hold) {
            record.flag = Flag::Held;
            self.server().dequeue(call);
        }
        if waits {
            self.note_caller();
            if rules.acquire_serves || self.server().used == 0 {
                self.grant_next(Some(call));
            }
        }
        let may_take = self.server().queue.is_empty()
            || !rules.newcomers_last && self.lock.request(call) == Request::READ;
        let reply = match self.state.server.records[call] {
            Some(record) if record.flag == Flag::Held => Reply::Held(record.token),
            Some(record) if record.flag == Flag::Revoked => Reply::Rejected,
            _ if self.is_other_kind(call) && rules.one_kind => Reply::Rejected,
            _ if self.state.server.is_queued(call) => Reply::Queued,
            _ if may_take && self.has_room(call) => {
                self.grant(call, Flag::Held);
                Reply::Held(self.state.newest)
            }
            _ => {
                self.server().queue.push(call as u8);
                self.state.calls[call].overdue = false;
                Reply::Queued
            }
        };
        self.end();
        reply
    }

    pub(crate) fn release(&mut self, call: usize, stops: bool) {
        let rules = &self.lock.rules;
        self.sweep();
        let (was_queued, record) = (self.server().is_queued(call), *self.record(call));
        if let Some(record) = record {
            self.drop_record(call, record.weight, stops);
        } else if !rules.record_not_number && self.state.calls[call].token != 0 {
            self.drop_record(call, self.lock.request(call).weight, false);
        }
        if stops {
            return;
        }
        if self.server().head().is_some() {
            self.note_caller();
            self.server().dequeue(call);
            let serves = match record {
                Some(_) => self.server().used == 0 || rules.release_serves,
                None => !was_queued || rules.cancel_serves,
            };
            if serves {
                self.grant_next(None);
            }
        }
        self.end();
    }

    /// Confirms a grant, or renews the hold of `token`.
    pub(crate) fn extend(&mut self, call: usize, token: Option<Token>) -> Reply {
        let rules = &self.lock.rules;
        let is_hold = |record: &&mut Record| {
            !(record.expired && rules.expired_is_absent
                || record.flag == Flag::Revoked && rules.revoked_ends)
                && token.is_none_or(|token| token == record.token)
        };
        let Some(record) = self.record(call).as_mut().filter(is_hold) else {
            return Reply::Rejected;
        };
        record.expired = false;
        let (is_revoked, held) = (record.flag == Flag::Revoked, record.token);
        if !is_revoked {
            record.flag = Flag::Held;
        }
        self.state.violate(Claim::Lifetime, is_revoked);
        if token.is_none() {
            self.note_caller();
        }
        Reply::Held(held)
    }

    pub(crate) fn downgrade(&mut self, call: usize) -> Reply {
        let rules = &self.lock.rules;
        self.sweep();
        let token = self.state.calls[call].write_token;
        let is_hold = |record: &Record| {
            record.flag != Flag::Revoked && (record.weight == 1 || record.token == token)
        };
        let record = self.record(call).filter(is_hold);
        let serves = match record {
            Some(_) => rules.downgrade_serves,
            None => rules.failed_downgrade_serves,
        };
        let mut reply = Reply::Rejected;
        if let Some(mut record) = record {
            if record.weight > 1 || !rules.downgrade_once {
                self.server().used = 1;
                record.weight = 1;
                if rules.new_downgrade_token {
                    self.server().phase = 0;
                    record.token = self.token_for(true);
                }
                self.server().phase = record.token;
                self.state.newest = record.token.max(self.state.newest);
            }
            record.flag = Flag::Held;
            *self.record(call) = Some(record);
            self.note_caller();
            reply = Reply::Held(record.token);
        }
        if serves {
            self.grant_next(None);
        }
        self.end();
        reply
    }

    pub(crate) fn check_queue(&mut self) {
        self.sweep();
        self.note_caller();
        if self.lock.rules.check_serves {
            self.grant_next(None);
        }
        self.end();
    }

    /// Revokes the holds of a token; `deletes` those of clients without a connection instead.
    pub(crate) fn revoke(&mut self, token: Token, deletes: bool) {
        let rules = &self.lock.rules;
        self.sweep();
        let (mut has_effect, mut gone) = (false, Vec::new());
        for (call, record) in self.state.server.records.iter_mut().enumerate() {
            let Some(record) = record.as_mut().filter(|record| record.token == token) else {
                continue;
            };
            if deletes && self.state.server.closed[self.lock.client(call)] {
                gone.push((call, record.weight));
            } else if !deletes || rules.revokes_neighbors {
                has_effect |= record.flag != Flag::Revoked || !rules.revokes_once;
                record.flag = Flag::Revoked;
            }
        }
        if has_effect || !gone.is_empty() {
            let server = self.server();
            server.fence += 1;
            if rules.revocation_ends_phase {
                server.phase = 0;
            }
            // The operator reports the token to the resource.
            let fence = server.fence;
            (self.state.seen, self.state.newest) = (fence, fence);
        }
        for (call, weight) in gone {
            self.drop_record(call, weight, false);
        }
        self.grant_next(None);
        self.end();
    }
}
