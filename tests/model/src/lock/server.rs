//! The scripts of `lua/`, one function each. A script is atomic. It sends its pushes on the
//! client's connection at once, before all later replies of the server.

use super::config::{Durations, Rules};
use super::state::{Id, Link, Lock, State};
use super::wire::{Body, Message, Proof, Sight};
use crate::tokens::{Token, Tokens as _};

#[derive(PartialEq, Eq)]
enum Driven {
    Granted,
    /// The acquiring client is the head, and takes the lock itself.
    Mine,
    /// The queue is empty.
    Free,
    /// The server refused a write.
    Refused,
}

/// A script that runs on the state.
pub(crate) struct Running<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) rules: Rules,
    pub(crate) durations: Durations,
    /// The client that sent the command.
    pub(crate) client: usize,
}

impl Running<'_> {
    pub(crate) fn acquire(&mut self, id: Id, apply_by: u8, left: u8) -> Body {
        if apply_by == 0 {
            return Body::Late;
        }
        let ttl = self.durations.lease;
        let era = self.state.server.era;
        let held = |token| Body::Held(Proof { token, left, era });
        let queue_counts = self.rules.queue_order;
        if self.state.server.lock.is_none() {
            let driven = if !queue_counts || self.state.server.queue.is_empty() {
                Driven::Free
            } else if self.rules.check_queue {
                self.drive(Some(id))
            } else {
                Driven::Granted
            };
            match driven {
                Driven::Granted => {}
                Driven::Refused => return Body::AcquireFailed,
                Driven::Mine | Driven::Free if self.state.server.refusing => {
                    return Body::AcquireFailed;
                }
                Driven::Mine | Driven::Free => {
                    self.note_passed(id);
                    self.remove(id);
                    self.forget_notes();
                    let token = self.take(id, ttl);
                    return held(token);
                }
            }
        }
        if self.state.server.refusing {
            return Body::AcquireFailed;
        }
        if let Some(lock) = &mut self.state.server.lock
            && lock.owner == id
        {
            lock.ttl = ttl;
            let token = lock.token;
            self.hear(id.client());
            return held(token);
        }
        self.hear(id.client());
        let queue = &mut self.state.server.queue;
        if !queue.contains(&id) {
            queue.push(id);
        }
        Body::Queued
    }

    pub(crate) fn confirm(&mut self, id: Id, left: u8) -> Body {
        let server = &mut self.state.server;
        match &mut server.lock {
            Some(lock) if lock.owner == id => {
                if server.refusing {
                    return Body::ConfirmFailed;
                }
                lock.ttl = self.durations.lease;
                let (token, era) = (lock.token, server.era);
                self.hear(id.client());
                Body::Confirmed(Proof { token, left, era })
            }
            _ => Body::NotYours,
        }
    }

    pub(crate) fn release(&mut self, id: Id) -> Body {
        let server = &mut self.state.server;
        let held = server.lock.is_some_and(|lock| lock.owner == id);
        if server.refusing && (held || !server.queue.is_empty()) {
            return Body::ReleaseFailed;
        }
        if held {
            server.lock = None;
        }
        if server.queue.is_empty() {
            return Body::Released;
        }
        let is_free = server.lock.is_none();
        self.hear(id.client());
        self.remove(id);
        if is_free && (held || self.rules.check_queue) {
            self.drive(None);
        }
        Body::Released
    }

    pub(crate) fn check_queue(&mut self, id: Id) -> Option<Body> {
        self.hear(id.client());
        if self.state.server.lock.is_none() && self.drive(None) == Driven::Refused {
            // An error for this lock; the next queue check retries.
            return None;
        }
        let server = &self.state.server;
        let sight = if server.lock.is_some_and(|lock| lock.owner == id) {
            Sight::Yours
        } else if server.queue.contains(&id) {
            Sight::Queued
        } else {
            Sight::Missing
        };
        Some(Body::Seen(sight))
    }

    /// Returns true if the renewal was applied, or `None` if the server refused it.
    pub(crate) fn renew(&mut self, id: Id, token: Token) -> Option<bool> {
        let server = &mut self.state.server;
        match &mut server.lock {
            Some(lock) if lock.owner == id && lock.token == token => {
                if server.refusing {
                    return None;
                }
                lock.ttl = self.durations.lease;
                Some(true)
            }
            _ => Some(false),
        }
    }

    /// Hands the free lock to the first live waiter.
    fn drive(&mut self, me: Option<Id>) -> Driven {
        loop {
            let Some(&head) = self.state.server.queue.first() else {
                self.forget_notes();
                return Driven::Free;
            };
            if Some(head) == me {
                return Driven::Mine;
            }
            let client = head.client();
            let is_subscribed = self.state.clients[client].is_subscribed();
            // A client whose last grant expired without a confirmation does not answer.
            let is_silent = self.state.server.notes[client] == Some(0);
            let is_alive = (client == self.client || is_subscribed) && !is_silent;
            if self.state.server.refusing {
                if is_alive && !self.rules.write_first {
                    let token = self.state.newest() + 1;
                    self.publish(head, token);
                }
                return Driven::Refused;
            }
            self.remove(head);
            if is_alive {
                self.grant(head);
                return Driven::Granted;
            }
        }
    }

    fn grant(&mut self, id: Id) {
        let server = &mut self.state.server;
        if server.queue.is_empty() {
            self.forget_notes();
        } else {
            server.notes[id.client()] = Some(self.durations.grant);
        }
        let token = self.take(id, self.durations.grant);
        self.publish(id, token);
    }

    fn take(&mut self, owner: Id, ttl: u8) -> Token {
        let token = self.state.newest() + 1;
        self.state.server.lock = Some(Lock { owner, token, ttl });
        token
    }

    /// Sends a grant. A client that has crashed or is not connected receives nothing.
    fn publish(&mut self, id: Id, token: Token) {
        let era = self.state.server.era;
        let left = self.durations.grant;
        let client = &mut self.state.clients[id.client()];
        // Without R3, a refusing server would publish without end.
        let has_room = self.rules.write_first || client.down.len() + 1 < 8;
        if client.link == Link::Up && !client.crashed && has_room {
            let body = Body::Push(Proof { token, left, era });
            client.down.push(Message { id, body });
        }
    }

    fn remove(&mut self, id: Id) {
        self.state.server.queue.retain(|waiter| *waiter != id);
    }

    /// Notes that a client responds.
    fn hear(&mut self, client: usize) {
        self.state.server.notes[client] = None;
    }

    /// Notes exist only while there is a queue.
    fn forget_notes(&mut self) {
        if self.state.server.queue.is_empty() {
            self.state.server.notes = Default::default();
        }
    }

    /// Records whether the taker passed another waiter. `drive` has removed the dead entries.
    fn note_passed(&mut self, id: Id) {
        let queue = &self.state.server.queue;
        self.state.wrongs.passed |= queue.first().is_some_and(|head| *head != id);
    }
}
