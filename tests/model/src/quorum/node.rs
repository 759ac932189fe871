//! One of the independent servers: a lock, and the largest known token.

use super::config::{LEASE, QUARANTINE, Rules};
use super::wire::{Body, Command, Owner, Script};
use crate::tokens::Token;

/// The lock on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    /// The owner.
    pub owner: Owner,
    /// The owner's token on this node.
    pub token: Token,
    /// Ticks until it expires.
    pub ttl: u8,
}

/// One node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Node {
    /// The remaining ticks in which the node grants nothing.
    pub quarantine: u8,
    /// Set once the node has lost its data.
    pub has_forgotten: bool,
    /// The lock.
    pub lock: Option<Lock>,
    /// The largest token that the node knows.
    pub fence: Token,
}

impl Node {
    /// Applies a command.
    pub fn apply(&mut self, rules: &Rules, Command { owner, script }: Command) -> Body {
        let given = self.lock.map(|lock| (lock.owner == owner, lock.token));
        match (script, given) {
            (Script::Release, _) => {
                self.lock = self.lock.filter(|lock| lock.owner != owner);
                Body::Released
            }
            _ if self.quarantine > 0 => Body::Refused,
            (Script::Acquire(floor), None) => {
                // Tokens were spread: the next one is above what this node knows, and no other
                // node has it.
                let is_newer = floor > self.fence || !rules.above_fence && floor > 0;
                let token = if is_newer { floor } else { self.fence + 1 };
                self.hold(owner, token);
                Body::Granted(token)
            }
            (Script::Repair(token), None) => self.hold(owner, token),
            (Script::Confirm(token) | Script::Repair(token), Some((true, given)))
                if given <= token =>
            {
                self.hold(owner, token)
            }
            (Script::Renew(token), Some((true, given))) if given == token => {
                self.lock = self.lock.map(|lock| Lock { ttl: LEASE, ..lock });
                Body::Holds
            }
            (Script::Renew(_), None) => Body::Lacks,
            (Script::Renew(token), Some((true, given))) if given < token => Body::Lacks,
            _ => Body::Refused,
        }
    }

    fn hold(&mut self, owner: Owner, token: Token) -> Body {
        self.fence = self.fence.max(token);
        let ttl = LEASE;
        self.lock = Some(Lock { owner, token, ttl });
        Body::Holds
    }

    /// Restarts without its data. `newest` is the largest token anywhere; the node's clock is above
    /// it once its quarantine has ended.
    pub fn forget(&mut self, rules: &Rules, newest: Token) {
        *self = Node {
            quarantine: if rules.quarantine { QUARANTINE } else { 0 },
            fence: if rules.clock { newest } else { 0 },
            has_forgotten: true,
            lock: None,
        };
    }

    pub(crate) fn tick(&mut self) {
        self.quarantine = self.quarantine.saturating_sub(1);
        let rest = |lock: Lock| {
            (lock.ttl > 1).then_some(Lock {
                ttl: lock.ttl - 1,
                ..lock
            })
        };
        self.lock = self.lock.and_then(rest);
    }
}
