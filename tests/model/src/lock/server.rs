//! The server's scripts, branch by branch. A script is atomic unless it stops half-way. It sends
//! its pushes on the client's connection at once, before all later replies of the server.

use super::config::{Durations, READ, Request};
use super::state::{CLIENTS, Flag, Id, Link, Record, Server, State};
use super::steps::Lock;
use super::wire::{Answer, Message, Proof};
use crate::explore::Claim;
use crate::tokens::{Token, Tokens as _};

/// The server refuses a write, which ends the script.
pub(crate) struct Refused;

/// A script that runs on the state.
pub(crate) struct Running<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) lock: &'a Lock,
    /// The process that sent the command. There is one number for all operators.
    pub(crate) process: usize,
}

impl Running<'_> {
    fn server(&mut self) -> &mut Server {
        &mut self.state.server
    }

    fn request(&self, id: Id) -> Request {
        self.lock.scope.request(id.client())
    }

    /// Comes before the first write of a script.
    fn write(&self) -> Result<(), Refused> {
        if self.state.server.refusing {
            return Err(Refused);
        }
        Ok(())
    }

    /// Returns true if a process receives no grants. The one that sent the command is connected.
    fn is_dead(&self, id: Id, skips_silent: bool) -> bool {
        let process = self.lock.process_of(id.client());
        let is_silent = self.state.server.notes[process] == Some(0);
        let mut clients = self.lock.clients_of(process);
        let is_connected = process == self.process
            || clients.any(|client| self.state.clients[client].is_subscribed());
        !is_connected || is_silent && skips_silent
    }

    fn is_other_kind(&self, id: Id) -> bool {
        let capacity = self.state.server.capacity;
        capacity != 0 && !Request::permits(0, capacity).is_kind(self.request(id))
    }

    fn has_room(&self, id: Id) -> bool {
        let (server, Request { weight, capacity }) = (&self.state.server, self.request(id));
        let is_own = self.lock.rules.own_number || server.capacity == 0;
        server.used + weight <= if is_own { capacity } else { server.capacity }
    }

    /// Recounts the holders, if a record may have expired. The key expires with its last record,
    /// which is no write.
    fn sweep(&mut self) -> Result<(), Refused> {
        let deletes = self.lock.rules.expired_is_absent;
        let server = &self.state.server;
        let live = server.records.iter().filter(|record| record.ttl > 0);
        let used = live.map(|record| record.weight).sum();
        if server.is_due {
            if used > 0 {
                self.write()?;
            }
            let server = self.server();
            server.records.retain(|record| record.ttl > 0 || !deletes);
            server.is_due = false;
            server.set_used(used);
        }
        Ok(())
    }

    /// Removes a holder. A script that stops after its first write leaves a sum that is too large.
    fn drop_record(&mut self, id: Id, weight: u8, stops: bool) {
        let record_first = self.lock.rules.record_first;
        let server = self.server();
        let used = server.used.saturating_sub(weight);
        // Without other holders, one command deletes both.
        if !stops || record_first || used == 0 {
            server.records.retain(|record| record.owner != id);
        }
        if !stops || !record_first || used == 0 {
            server.set_used(used);
        }
    }

    fn token_for(&mut self, request: Request) -> Token {
        let (rules, next) = (&self.lock.rules, self.state.newest() + 1);
        let server = &mut self.state.server;
        let is_reader = request == READ;
        if is_reader && server.phase_token != 0 && rules.shared_token {
            return server.phase_token;
        }
        let is_new = !is_reader || rules.new_phase_token || server.fence == 0;
        let token = if is_new { next } else { server.fence };
        server.fence = if request.is_rw() { token } else { 0 };
        server.phase_token = if is_reader { token } else { 0 };
        token
    }

    fn grant(&mut self, id: Id, flag: Flag) -> Token {
        let request = self.request(id);
        let queue = self.state.server.queue;
        let mut earlier = queue.iter().take_while(|waiter| **waiter != id);
        let passes = earlier.any(|waiter| !self.is_dead(*waiter, true));
        self.state.violate_if(passes, Claim::InOrder);
        let token = self.token_for(request);
        if request.is_rw() {
            let newest = std::mem::replace(&mut self.state.newest, token);
            self.state.violate_if(token < newest, Claim::TokensRise);
        }
        let Durations { lease, grant, .. } = self.lock.scope.durations;
        let is_short = flag == Flag::Granted && self.lock.rules.short_grant;
        let ttl = if is_short { grant } else { lease };
        if flag == Flag::Granted {
            let process = self.lock.process_of(id.client());
            let note = self.server().notes[process].replace(ttl);
            self.state.violate_if(note == Some(0), Claim::ServedAtOnce);
            self.publish(id, token);
        }
        let (server, Request { weight, capacity }) = (self.server(), request);
        server.dequeue(id);
        server.capacity = capacity;
        server.used += weight;
        server.put(Record {
            owner: id,
            flag,
            weight,
            token,
            ttl,
        });
        token
    }

    /// Sends a grant. A client that has crashed or is not connected receives nothing.
    fn publish(&mut self, id: Id, token: Token) {
        let (era, left) = (self.state.server.era, self.lock.scope.durations.grant);
        let client = &mut self.state.clients[id.client()];
        // Without R3, a refusing server would publish without end.
        let has_room = self.lock.rules.write_first || client.down.len() + 1 < 8;
        if client.link == Link::Up && !client.crashed && has_room {
            let (to, answer) = (None, Answer::Held(Proof { token, left, era }));
            client.down.push(Message { id, to, answer });
        }
    }

    /// Grants to the head of the queue for as long as it fits, to `me` as to a holder.
    fn grant_next(&mut self, me: Option<Id>) -> Result<(), Refused> {
        let rules = &self.lock.rules;
        while let Some(head) = self.state.server.queue.first().copied() {
            let is_dead = self.is_dead(head, rules.skips_silent);
            if is_dead && self.state.server.used > 0 && !rules.dead_heads_leave {
                return Ok(());
            } else if is_dead || self.is_other_kind(head) && rules.one_kind {
                self.write()?;
                self.server().dequeue(head);
            } else if self.has_room(head) && Some(head) == me {
                self.write()?;
                self.grant(head, Flag::Held);
                if !rules.acquire_serves_on {
                    return Ok(());
                }
            } else if self.has_room(head) {
                if self.state.server.refusing && !rules.write_first {
                    let token = self.state.newest() + 1;
                    self.publish(head, token);
                }
                self.write()?;
                self.grant(head, Flag::Granted);
            } else {
                let mut queue = self.state.server.queue.into_iter();
                let other = queue.find(|waiter| self.has_room(*waiter));
                if let Some(other) = other.filter(|_| !rules.head_only) {
                    self.grant(other, Flag::Granted);
                }
                return Ok(());
            }
        }
        self.server().notes = Default::default();
        Ok(())
    }

    /// Checks what a script that serves must achieve. The next one removes a dead waiter of the
    /// process that sent this one.
    fn end(&mut self) {
        let mut head = self.state.server.queue.first().copied();
        head = head.filter(|head| self.lock.process_of(head.client()) != self.process);
        if let Some(head) = head {
            let fits = self.has_room(head) && !self.is_other_kind(head);
            let is_dead = self.is_dead(head, self.lock.rules.skips_silent);
            self.state.violate_if(fits || is_dead, Claim::ServedAtOnce);
        }
    }

    /// Notes that the process responds. Notes exist only while there is a queue.
    fn hear(&mut self) -> Result<(), Refused> {
        let process = self.process;
        if self.state.server.notes[process].is_some() {
            self.write()?;
            self.server().notes[process] = None;
        }
        Ok(())
    }

    pub(crate) fn acquire(&mut self, id: Id, apply_by: u8, left: u8) -> Result<Answer, Refused> {
        if apply_by == 0 {
            return Ok(Answer::Failed);
        }
        let (rules, lease) = (&self.lock.rules, self.lock.scope.durations.lease);
        self.sweep()?;
        let server = &self.state.server;
        let (waits, record) = (!server.queue.is_empty(), server.record(id));
        let is_hold = |record: &Record| record.flag != Flag::Revoked && rules.one_record;
        if let Some(mut record) = record.filter(is_hold) {
            self.write()?;
            self.server().dequeue(id);
            (record.flag, record.ttl) = (Flag::Held, lease);
            self.server().put(record);
        }
        if waits {
            self.hear()?;
        }
        let serves = rules.acquire_serves || self.state.server.used == 0;
        if waits && serves && rules.queue_order {
            self.grant_next(Some(id))?;
        }
        let server = &self.state.server;
        let may_take = server.queue.is_empty() || !rules.queue_order;
        let held = |token, era| Answer::Held(Proof { token, left, era });
        let reply = match server.record(id) {
            Some(record) if record.flag == Flag::Held => held(record.token, server.era),
            Some(record) if record.flag == Flag::Revoked => Answer::Gone,
            _ if self.is_other_kind(id) && rules.one_kind => Answer::Gone,
            _ => {
                self.write()?;
                if self.state.server.queue.contains(&id) {
                    Answer::Queued
                } else if may_take && self.has_room(id) {
                    held(self.grant(id, Flag::Held), self.state.server.era)
                } else {
                    self.server().queue.push(id);
                    Answer::Queued
                }
            }
        };
        self.end();
        Ok(reply)
    }

    pub(crate) fn release(&mut self, id: Id, stops: bool) -> Result<Answer, Refused> {
        let rules = &self.lock.rules;
        self.sweep()?;
        let server = &self.state.server;
        let (was_queued, record) = (server.queue.contains(&id), server.record(id));
        if let Some(record) = record {
            self.write()?;
            self.drop_record(id, record.weight, stops);
        } else if !rules.record_not_number {
            self.drop_record(id, self.request(id).weight, false);
        }
        if !stops && !self.state.server.queue.is_empty() {
            self.write()?;
            self.hear()?;
            self.server().dequeue(id);
            let serves = match record {
                Some(_) => self.state.server.used == 0 || rules.release_serves,
                None => !was_queued || rules.cancel_serves,
            };
            if serves {
                self.grant_next(None)?;
            }
            self.end();
        }
        Ok(Answer::Gone)
    }

    /// Extends the hold of an id, or only that of a token.
    fn extend(&mut self, id: Id, token: Option<Token>) -> Result<Option<Token>, Refused> {
        let (rules, lease) = (&self.lock.rules, self.lock.scope.durations.lease);
        let is_hold = |record: &Record| {
            token.is_none_or(|token| token == record.token)
                && !(record.ttl == 0 && rules.expired_is_absent)
                && !(record.flag == Flag::Revoked && rules.revoked_ends)
        };
        let Some(mut record) = self.state.server.record(id).filter(is_hold) else {
            return Ok(None);
        };
        self.write()?;
        let is_revoked = record.flag == Flag::Revoked;
        self.state.violate_if(is_revoked, Claim::Lifetime);
        record.ttl = lease;
        if !is_revoked {
            record.flag = Flag::Held;
        }
        self.server().put(record);
        Ok(Some(record.token))
    }

    pub(crate) fn confirm(&mut self, id: Id, left: u8) -> Result<Answer, Refused> {
        let Some(token) = self.extend(id, None)? else {
            return Ok(Answer::Gone);
        };
        self.hear()?;
        let era = self.state.server.era;
        Ok(Answer::Held(Proof { token, left, era }))
    }

    pub(crate) fn renew(&mut self, id: Id, token: Token) -> Result<bool, Refused> {
        Ok(self.extend(id, Some(token))?.is_some())
    }

    /// The writer's token is an argument of the command.
    pub(crate) fn downgrade(&mut self, id: Id, left: u8) -> Result<Answer, Refused> {
        let (rules, lease) = (&self.lock.rules, self.lock.scope.durations.lease);
        self.sweep()?;
        let token = self.state.clients[id.client()].write_token;
        let is_write = |record: &Record| record.weight == 1 || record.token == token;
        let is_hold = |record: &Record| record.flag != Flag::Revoked && is_write(record);
        let mut reply = Answer::Gone;
        let mut serves = rules.failed_downgrade_serves;
        if let Some(mut record) = self.state.server.record(id).filter(is_hold) {
            self.write()?;
            if record.weight > 1 || !rules.downgrade_once {
                if rules.new_downgrade_token {
                    record.token = self.state.newest() + 1;
                    self.server().fence = record.token;
                }
                self.server().phase_token = record.token;
                self.server().used = 1;
                record.weight = 1;
                self.state.newest = record.token.max(self.state.newest);
            }
            (record.flag, record.ttl) = (Flag::Held, lease);
            self.server().put(record);
            self.hear()?;
            let (token, era) = (record.token, self.state.server.era);
            reply = Answer::Held(Proof { token, left, era });
            serves = rules.downgrade_serves;
        }
        if serves {
            self.grant_next(None)?;
        }
        self.end();
        Ok(reply)
    }

    /// The client asks again after an error.
    pub(crate) fn check_queue(&mut self, id: Id) -> Result<Answer, Refused> {
        self.sweep()?;
        self.hear()?;
        if self.lock.rules.check_serves {
            self.grant_next(None)?;
        }
        self.end();
        let server = &self.state.server;
        Ok(if server.record(id).is_some() {
            Answer::Held(Proof::default())
        } else if server.queue.contains(&id) {
            Answer::Queued
        } else {
            Answer::Gone
        })
    }

    /// Revokes the holds of a token; `deletes` those of processes without a connection instead.
    pub(crate) fn revoke(&mut self, token: Token, deletes: bool) -> Result<(), Refused> {
        let rules = &self.lock.rules;
        self.sweep()?;
        self.write()?;
        let (mut has_effect, records) = (false, self.state.server.records);
        let revoked = records.iter().filter(|record| record.token == token);
        let is_gone = |record: &Record| deletes && self.is_dead(record.owner, false);
        let (gone, kept): (Vec<_>, Vec<_>) = revoked.copied().partition(is_gone);
        for record in &gone {
            has_effect |= record.flag != Flag::Revoked || !rules.deletes_once;
        }
        for mut record in kept {
            if !deletes || rules.revokes_neighbors {
                has_effect |= record.flag != Flag::Revoked || !rules.revokes_once;
                record.flag = Flag::Revoked;
                self.server().put(record);
            }
        }
        // A newer token would also reject the readers that came since the first revocation.
        if has_effect {
            let token = self.state.newest() + 1;
            self.server().fence = token;
            // The operator reports the token to the resource.
            (self.state.seen, self.state.newest) = (token, token);
            if rules.revocation_ends_phase {
                self.server().phase_token = 0;
            }
        }
        for record in gone {
            self.drop_record(record.owner, record.weight, false);
        }
        if rules.revoke_serves {
            self.grant_next(None)?;
        }
        self.end();
        Ok(())
    }
}

impl Server {
    pub(crate) fn dequeue(&mut self, id: Id) {
        self.queue.retain(|waiter| *waiter != id);
    }

    /// Writes the record of its owner.
    pub(crate) fn put(&mut self, record: Record) {
        self.records.retain(|other| other.owner != record.owner);
        self.records.push(record);
        self.records.sort_unstable_by_key(|record| record.owner);
    }

    fn set_used(&mut self, used: u8) {
        self.used = used;
        if used == 0 {
            (self.capacity, self.phase_token, self.is_due) = (0, 0, false);
        }
    }
}

/// Stands for the process of an operator.
pub(crate) const OPERATOR: usize = CLIENTS;
