//! One of the independent servers: a vote, a queue by tickets, and the largest known token.

use super::config::{GRANT, LEASE, QUARANTINE, Rules};
use super::wire::{Body, Command, Message, Owner, Owners, Script};
use crate::tokens::Token;

/// The lock on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lock {
    /// The owner.
    pub owner: Owner,
    /// The token of the vote or hold.
    pub token: Token,
    /// Ticks until it expires.
    pub ttl: u8,
    /// Set once the lock is more than a vote.
    pub confirmed: bool,
}

/// One node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    /// Set while the node serves no client.
    pub down: bool,
    /// The remaining ticks in which the node does not vote.
    pub quarantine: u8,
    /// Set once the node has lost its data.
    pub has_forgotten: bool,
    /// The lock.
    pub lock: Option<Lock>,
    /// The waiters.
    pub queue: Owners,
    /// The largest token that the node knows.
    pub fence: Token,
}

/// The messages that a command causes: a reply, and at most one push.
#[derive(Clone, Copy, Debug)]
pub struct Response {
    /// The reply to the client that sent the command.
    pub answer: Body,
    /// A push to an owner that waits, or has too few votes.
    pub push: Option<Message>,
}

impl From<Body> for Response {
    fn from(answer: Body) -> Self {
        Response { answer, push: None }
    }
}

impl Node {
    /// Votes for an owner. Because tokens were spread before, the new one is just above what the
    /// node knows, and no other node has it.
    fn vote_for(&mut self, owner: Owner) -> Body {
        self.queue.remove(owner);
        self.fence += 1;
        self.lock = Some(Lock {
            owner,
            token: self.fence,
            ttl: GRANT,
            confirmed: false,
        });
        Body::Granted(self.fence)
    }

    /// Votes for the lowest ticket with a listening client.
    fn next(&mut self, listens: impl Fn(Owner) -> bool) -> Option<Message> {
        while let Some(owner) = self.queue.lowest() {
            if listens(owner) {
                let body = self.vote_for(owner);
                return Some(Message { owner, body });
            }
            self.queue.remove(owner);
        }
        None
    }

    /// Votes for the lowest ticket. Confirms it with `named`, if newer, for a vote's duration.
    fn hand_on(
        &mut self,
        rules: &Rules,
        named: Option<Token>,
        listens: impl Fn(Owner) -> bool,
    ) -> Option<Message> {
        let last = self.fence;
        let mut granted = self.next(listens)?;
        if let Some(named) = named.filter(|named| *named > last || !rules.names_newer) {
            self.fence = last;
            self.confirm(granted.owner, named, GRANT);
            granted.body = Body::HandedOn(named, GRANT);
        }
        Some(granted)
    }

    /// Applies a command. `listens` returns true if an owner's client can receive a vote.
    pub fn apply(
        &mut self,
        rules: &Rules,
        command: Command,
        listens: impl Fn(Owner) -> bool,
    ) -> Response {
        let owner = command.owner;
        if self.quarantine > 0 {
            return Response::from(match command.script {
                Script::Acquire(_) => Body::NotVoting,
                Script::Yield(_) => Body::Yielded,
                Script::Release(_) => Body::Released,
                Script::Confirm(_) | Script::Renew(_) | Script::Repair(_) => Body::Refused,
            });
        }
        match command.script {
            Script::Acquire(named) => self.acquire(rules, owner, named, listens),
            Script::Yield(token) => {
                let its = |lock: Lock| {
                    lock.owner == owner && (lock.token == token || !rules.yield_names_token)
                };
                let mut push = None;
                if self.lock.is_some_and(its) {
                    self.lock = None;
                    self.queue.add(owner);
                    push = self.next(listens);
                }
                let answer = Body::Yielded;
                Response { answer, push }
            }
            Script::Confirm(token) => Response::from(match self.lock {
                // Granted again, unknown to the owner, so other holds may be newer than `token`.
                Some(lock) if lock.owner == owner && token < lock.token && rules.refuses_older => {
                    Body::Newer(lock.token)
                }
                Some(lock) if lock.owner == owner => self.confirm(owner, token, LEASE),
                _ => Body::Refused,
            }),
            Script::Release(named) => {
                self.queue.remove(owner);
                self.lock = self.lock.filter(|lock| lock.owner != owner);
                let push = match self.lock {
                    None => self.hand_on(rules, named, listens),
                    Some(_) => None,
                };
                let answer = Body::Released;
                Response { answer, push }
            }
            Script::Renew(token) => Response::from(match &mut self.lock {
                Some(lock) if lock.confirmed && lock.owner == owner && lock.token == token => {
                    lock.ttl = LEASE;
                    Body::Confirmed(token)
                }
                Some(lock) if lock.confirmed => Body::Refused,
                // An unconfirmed vote is not a hold; a hold that most nodes confirmed replaces it.
                _ => Body::Free,
            }),
            Script::Repair(token) => Response::from(match self.lock {
                Some(lock) if lock.confirmed => Body::Refused,
                _ => self.confirm(owner, token, LEASE),
            }),
        }
    }

    fn confirm(&mut self, owner: Owner, token: Token, ttl: u8) -> Body {
        self.fence = self.fence.max(token);
        self.lock = Some(Lock {
            owner,
            token,
            ttl,
            confirmed: true,
        });
        Body::Confirmed(token)
    }

    fn acquire(
        &mut self,
        rules: &Rules,
        owner: Owner,
        named: Option<Token>,
        listens: impl Fn(Owner) -> bool,
    ) -> Response {
        if let Some(lock) = &mut self.lock
            && lock.owner == owner
        {
            if !lock.confirmed {
                lock.ttl = GRANT;
            }
            let is_lower_there = self.queue.lowest().is_some_and(|lowest| lowest < owner);
            return Body::Yours(lock.token, is_lower_there && rules.notifies_lower).into();
        }
        self.queue.add(owner);
        let Some(lock) = self.lock else {
            let last = self.fence;
            let granted = self.next(|other| other == owner || listens(other));
            let Some(granted) = granted.filter(|granted| granted.owner == owner) else {
                return Response {
                    answer: Body::Queued,
                    push: granted,
                };
            };
            if let Some(named) = named.filter(|named| *named > last || !rules.names_newer) {
                self.fence = last;
                return self.confirm(owner, named, LEASE).into();
            }
            return granted.body.into();
        };
        let is_notified = owner < lock.owner
            && rules.notifies_lower
            && (rules.notifies_confirmed || !lock.confirmed)
            && listens(lock.owner);
        Response {
            answer: Body::Queued,
            push: is_notified.then_some(Message {
                owner: lock.owner,
                body: Body::Lower,
            }),
        }
    }

    /// Restarts without its data. `newest` is the largest token anywhere; the node's clock is above
    /// it once its quarantine has ended.
    pub fn forget(&mut self, rules: &Rules, newest: Token) {
        *self = Node {
            quarantine: if rules.quarantine { QUARANTINE } else { 0 },
            fence: if rules.clock { newest } else { 0 },
            has_forgotten: true,
            ..Node::default()
        };
    }

    pub(crate) fn tick(&mut self) {
        self.quarantine = self.quarantine.saturating_sub(1);
        if let Some(lock) = &mut self.lock {
            lock.ttl -= 1;
            if lock.ttl == 0 {
                self.lock = None;
            }
        }
    }
}
