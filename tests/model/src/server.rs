//! The scripts of `lua/`, one function each. A script is atomic; what it publishes goes to the client's
//! connection at once, in front of whatever the server answers there later.

use crate::config::{Rules, Times};
use crate::state::{Entry, Id, Link, Lock, State};
use crate::wire::{Message, Proof, Sight, Token};

/// How far `drive` came.
#[derive(PartialEq, Eq)]
enum Driven {
    Granted,
    /// The head is who asks: it takes the lock itself.
    Mine,
    /// Nobody waits.
    Free,
    /// The server refused a write.
    Refused,
}

/// A script at work on the state.
pub(crate) struct Script<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) rules: Rules,
    pub(crate) times: Times,
    /// Whose connection it came by.
    pub(crate) client: usize,
}

impl Script<'_> {
    pub(crate) fn ask(&mut self, id: Id, by: u8, left: u8) -> Message {
        if by == 0 {
            return Message::Late(id);
        }
        let ttl = self.times.lease + self.times.grace;
        let era = self.state.server.era;
        let held = |token| Message::Held(id, Proof { token, left, era });
        let queue_counts = self.rules.queue_order;
        if self.state.server.lock.is_none() {
            let driven = if !queue_counts || self.state.server.queue.is_empty() {
                Driven::Free
            } else if self.rules.drive {
                self.drive(Some(id))
            } else {
                Driven::Granted
            };
            match driven {
                Driven::Granted => {}
                Driven::Refused => return Message::AskFailed(id),
                Driven::Mine | Driven::Free if self.state.server.refusing => {
                    return Message::AskFailed(id);
                }
                Driven::Mine | Driven::Free => {
                    self.note_passed(id);
                    self.remove(id);
                    let token = self.take(id, ttl);
                    return held(token);
                }
            }
        }
        if self.state.server.refusing {
            return Message::AskFailed(id);
        }
        if let Some(lock) = &mut self.state.server.lock
            && lock.owner == id
        {
            lock.ttl = ttl;
            let token = lock.token;
            self.remove(id);
            return held(token);
        }
        let server = &mut self.state.server;
        if !server.queue.iter().any(|entry| entry.id == id) {
            server.queue.push(Entry { id, marked: false });
        }
        Message::Queued(id)
    }

    pub(crate) fn confirm(&mut self, id: Id, left: u8) -> Message {
        let server = &mut self.state.server;
        match &mut server.lock {
            Some(lock) if lock.owner == id => {
                if server.refusing {
                    return Message::ConfirmFailed(id);
                }
                lock.ttl = self.times.lease + self.times.grace;
                let (token, era) = (lock.token, server.era);
                self.remove(id);
                Message::Confirmed(id, Proof { token, left, era })
            }
            _ => Message::NotYours(id),
        }
    }

    pub(crate) fn release(&mut self, id: Id) -> Message {
        let server = &mut self.state.server;
        let held = server.lock.is_some_and(|lock| lock.owner == id);
        if server.refusing && (held || !server.queue.is_empty()) {
            return Message::ReleaseFailed(id);
        }
        if held {
            server.lock = None;
        }
        let Some(head) = server.queue.first() else {
            return Message::Released(id);
        };
        let is_free = server.lock.is_none();
        if !held || head.id == id {
            self.remove(id);
        }
        if is_free && (held || self.rules.drive) {
            self.drive(None);
        }
        Message::Released(id)
    }

    pub(crate) fn look(&mut self, id: Id) -> Option<Message> {
        if self.state.server.lock.is_none() && self.drive(None) == Driven::Refused {
            // An error for this lock: the next look tries again.
            return None;
        }
        let server = &self.state.server;
        let sight = if server.lock.is_some_and(|lock| lock.owner == id) {
            Sight::Yours
        } else if server.queue.iter().any(|entry| entry.id == id) {
            Sight::Queued
        } else {
            Sight::Missing
        };
        Some(Message::Seen(id, sight))
    }

    /// Whether the renewal was applied; `None`: the server refused it.
    pub(crate) fn renew(&mut self, id: Id, token: Token) -> Option<bool> {
        let server = &mut self.state.server;
        match &mut server.lock {
            Some(lock) if lock.owner == id && lock.token == token => {
                if server.refusing {
                    return None;
                }
                lock.ttl = self.times.lease + self.times.grace;
                Some(true)
            }
            _ => Some(false),
        }
    }

    /// Hands the free lock to the first live waiter.
    fn drive(&mut self, me: Option<Id>) -> Driven {
        loop {
            let Some(head) = self.state.server.queue.first() else {
                return Driven::Free;
            };
            if !head.marked && Some(head.id) == me {
                return Driven::Mine;
            }
            let whose = head.id.client();
            let alive = whose == self.client || self.state.clients[whose].is_subscribed();
            if self.state.server.refusing {
                if !head.marked && alive && !self.rules.write_first {
                    let token = self.state.next_token();
                    self.publish(head.id, token);
                }
                return Driven::Refused;
            }
            if head.marked {
                // Granted and never confirmed, and the lock has expired: that client does not answer.
                if whose == self.client {
                    self.remove(head.id);
                } else {
                    let queue = &mut self.state.server.queue;
                    queue.retain(|entry| entry.id.client() != whose);
                }
            } else if alive {
                self.grant(head.id);
                return Driven::Granted;
            } else {
                self.remove(head.id);
            }
        }
    }

    fn grant(&mut self, id: Id) {
        for entry in self.state.server.queue.iter_mut() {
            entry.marked |= entry.id == id;
        }
        let token = self.take(id, self.times.grant + self.times.grace);
        self.publish(id, token);
    }

    fn take(&mut self, owner: Id, ttl: u8) -> Token {
        let token = self.state.next_token();
        self.state.server.lock = Some(Lock { owner, token, ttl });
        token
    }

    /// A client that has gone, or whose connection has, hears nothing.
    fn publish(&mut self, id: Id, token: Token) {
        let era = self.state.server.era;
        let left = self.times.grant;
        let client = &mut self.state.clients[id.client()];
        // Without rule 3 a refusing server publishes without end.
        let has_room = self.rules.write_first || client.down.len() + 1 < 8;
        if client.link == Link::Up && !client.crashed && has_room {
            let proof = Proof { token, left, era };
            client.down.push(Message::Push(id, proof));
        }
    }

    fn remove(&mut self, id: Id) {
        self.state.server.queue.retain(|entry| entry.id != id);
    }

    /// Who takes the lock by asking must have nobody in front. What `drive` found dead is gone by now.
    fn note_passed(&mut self, id: Id) {
        let queue = self.state.server.queue.as_slice();
        let mut ahead = queue.iter().take_while(|entry| entry.id != id);
        self.state.wrongs.passed |= ahead.any(|entry| !entry.marked);
    }
}
