//! One of the independent servers: a vote, a queue by tickets, and the largest token it knows.

use super::config::{GRANT, LEASE, QUARANTINE, Rules};
use super::wire::{Command, Message, Owner, Owners, Token};

/// The lock as one node has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lock {
    /// Whose it is.
    pub owner: Owner,
    /// Its token.
    pub token: Token,
    /// Ticks until it expires.
    pub ttl: u8,
    /// It is more than a vote.
    pub confirmed: bool,
}

/// One node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    /// It serves nobody.
    pub down: bool,
    /// Ticks in which it does not vote.
    pub quarantine: u8,
    /// It lost its data at some time.
    pub has_forgotten: bool,
    /// The lock.
    pub lock: Option<Lock>,
    /// Who waits for it.
    pub queue: Owners,
    /// The largest token that it knows.
    pub fence: Token,
}

/// What a command makes a node say: an answer, and at most one push.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    /// To whoever asked.
    pub answer: Message,
    /// To an owner that waits, or has too few votes.
    pub push: Option<Message>,
}

impl Said {
    fn only(answer: Message) -> Self {
        Said { answer, push: None }
    }
}

impl Node {
    /// Tokens are spread before: the next one is just above what the node knows, and no other's.
    fn vote_for(&mut self, owner: Owner) -> Message {
        self.queue.remove(owner);
        self.fence += 1;
        self.lock = Some(Lock {
            owner,
            token: self.fence,
            ttl: GRANT,
            confirmed: false,
        });
        Message::Granted(owner, self.fence)
    }

    /// Has the lowest ticket that listens have its vote.
    fn next(&mut self, listens: impl Fn(Owner) -> bool) -> Option<Message> {
        while let Some(lowest) = self.queue.lowest() {
            if listens(lowest) {
                return Some(self.vote_for(lowest));
            }
            self.queue.remove(lowest);
        }
        None
    }

    /// The same, and with the token that is named it is confirmed for as long as a vote lasts.
    fn hand_on(
        &mut self,
        rules: &Rules,
        named: Option<Token>,
        listens: impl Fn(Owner) -> bool,
    ) -> Option<Message> {
        let last = self.fence;
        let granted = self.next(listens)?;
        let Some(named) = named.filter(|named| *named > last || !rules.names_newer) else {
            return Some(granted);
        };
        self.fence = last;
        self.confirm(granted.owner(), named, GRANT);
        Some(Message::HandedOn(granted.owner(), named, GRANT))
    }

    /// Applies a command. `listens`: whether an owner's client can be told of a vote.
    pub fn apply(
        &mut self,
        rules: &Rules,
        command: Command,
        listens: impl Fn(Owner) -> bool,
    ) -> Said {
        if self.quarantine > 0 {
            return Said::only(match command {
                Command::Ask(owner, _) => Message::NotVoting(owner),
                Command::Yield(owner, _) => Message::Yielded(owner),
                Command::Release(owner, _) => Message::Released(owner),
                Command::Confirm(owner, _)
                | Command::Renew(owner, _)
                | Command::Repair(owner, _) => Message::Refused(owner),
            });
        }
        match command {
            Command::Ask(owner, named) => self.ask(rules, owner, named, listens),
            Command::Yield(owner, token) => {
                let its = |lock: Lock| {
                    lock.owner == owner && (lock.token == token || !rules.yield_names_token)
                };
                let mut push = None;
                if self.lock.is_some_and(its) {
                    self.lock = None;
                    self.queue.add(owner);
                    push = self.next(listens);
                }
                Said {
                    answer: Message::Yielded(owner),
                    push,
                }
            }
            Command::Confirm(owner, token) => Said::only(match self.lock {
                // It was granted anew since, and its owner does not know: what it confirms is older than other holds may be.
                Some(lock) if lock.owner == owner && token < lock.token && rules.refuses_older => {
                    Message::Newer(owner, lock.token)
                }
                Some(lock) if lock.owner == owner => self.confirm(owner, token, LEASE),
                _ => Message::Refused(owner),
            }),
            Command::Release(owner, named) => {
                self.queue.remove(owner);
                self.lock = self.lock.filter(|lock| lock.owner != owner);
                let push = match self.lock {
                    None => self.hand_on(rules, named, listens),
                    Some(_) => None,
                };
                Said {
                    answer: Message::Released(owner),
                    push,
                }
            }
            Command::Renew(owner, token) => Said::only(match &mut self.lock {
                Some(lock) if lock.confirmed && lock.owner == owner && lock.token == token => {
                    lock.ttl = LEASE;
                    Message::Confirmed(owner, token)
                }
                Some(lock) if lock.confirmed => Message::Refused(owner),
                // A vote that is not confirmed is no hold: another's that most nodes have confirmed goes before it.
                _ => Message::Free(owner),
            }),
            Command::Repair(owner, token) => Said::only(match self.lock {
                lock if lock.is_none_or(|lock| !lock.confirmed) => {
                    self.confirm(owner, token, LEASE)
                }
                _ => Message::Refused(owner),
            }),
        }
    }

    fn confirm(&mut self, owner: Owner, token: Token, ttl: u8) -> Message {
        self.fence = self.fence.max(token);
        self.lock = Some(Lock {
            owner,
            token,
            ttl,
            confirmed: true,
        });
        Message::Confirmed(owner, token)
    }

    fn ask(
        &mut self,
        rules: &Rules,
        owner: Owner,
        named: Option<Token>,
        listens: impl Fn(Owner) -> bool,
    ) -> Said {
        if let Some(lock) = &mut self.lock
            && lock.owner == owner
        {
            if !lock.confirmed {
                lock.ttl = GRANT;
            }
            let is_lower_there = self.queue.lowest().is_some_and(|lowest| lowest < owner);
            let is_told = is_lower_there && rules.tells_lower;
            return Said::only(Message::Yours(owner, lock.token, is_told));
        }
        self.queue.add(owner);
        let Some(lock) = self.lock else {
            let listens_or_asks = |other| other == owner || listens(other);
            let last = self.fence;
            let granted = self.next(listens_or_asks);
            if let Some(Message::Granted(to, _)) = granted
                && to == owner
                && let Some(named) = named.filter(|named| *named > last || !rules.names_newer)
            {
                self.fence = last;
                return Said::only(self.confirm(owner, named, LEASE));
            }
            return match granted {
                Some(message @ Message::Granted(to, _)) if to == owner => Said::only(message),
                push => Said {
                    answer: Message::Queued(owner),
                    push,
                },
            };
        };
        let is_told = owner < lock.owner
            && rules.tells_lower
            && (rules.tells_confirmed || !lock.confirmed)
            && listens(lock.owner);
        Said {
            answer: Message::Queued(owner),
            push: is_told.then_some(Message::Lower(lock.owner)),
        }
    }

    /// It comes back without its data. `newest`: the largest token anywhere, which its clock is above once its quarantine
    /// is over.
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
