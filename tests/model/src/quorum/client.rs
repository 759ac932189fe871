//! The actions of a client: acquiring, confirming, holding, renewing and releasing.

use super::config::{Config, LEASE};
use super::state::{End, Phase, State, Status};
use super::wire::{Body, Command, Owner, Reply, Script};
use crate::tokens::Token;

impl End {
    fn send(&mut self, owner: Owner, script: Script) {
        self.used = true;
        self.to_node.push(Command { owner, script });
    }

    /// Gives up the connection. What the node has granted remains true.
    pub(crate) fn lose(&mut self) {
        if !self.up {
            return;
        }
        self.up = false;
        self.old = std::mem::take(&mut self.to_node);
        self.late |= self.old.iter().any(|command| command.script.has_deadline());
        self.to_client.clear();
        self.released = Default::default();
        if !matches!(self.status, Status::Granted(_) | Status::Renewed) {
            self.status = Status::Unknown;
        }
    }

    /// Ends the attempt on this node.
    fn abandon(&mut self, config: &Config, owner: Owner) {
        let is_asked = matches!(self.status, Status::Unknown | Status::Acquiring);
        if self.used && (!is_asked || config.rules.released_everywhere) {
            self.owed.set(owner, true);
        }
        (self.status, self.used) = (Status::Unknown, false);
    }

    fn release(&mut self, config: &Config) {
        for over in self.owed.iter() {
            let is_to_wait = self.late && self.again.contains(over);
            if self.up && !self.released.contains(over) && !is_to_wait {
                // A late command may arrive after the release.
                let is_to_repeat = self.late && config.rules.releases_again;
                self.again.set(over, is_to_repeat);
                self.released.set(over, true);
                let script = Script::Release;
                self.to_node.push(Command {
                    owner: over,
                    script,
                });
            }
        }
    }
}

impl<const N: usize, const C: usize> State<N, C> {
    /// Begins an attempt with this floor token.
    pub(crate) fn begin(&mut self, client: usize, floor: Token) {
        let owner = self.owner(client);
        for end in self.ends_mut(client).filter(|end| end.up) {
            end.send(owner, Script::Acquire(floor));
            end.status = Status::Acquiring;
        }
        let client = &mut self.clients[client];
        (client.phase, client.valid) = (Phase::Acquiring, LEASE);
    }

    /// Renews the hold on all nodes without a command in flight.
    pub(crate) fn renew(&mut self, client: usize, token: Token) {
        let owner = self.owner(client);
        for end in self.ends_mut(client) {
            end.status = match end.status {
                Status::Renewing(_) => Status::Renewing(false),
                status @ (Status::Acquiring | Status::Confirming | Status::Repairing) => status,
                _ if end.up => {
                    end.send(owner, Script::Renew(token));
                    Status::Renewing(true)
                }
                _ => Status::Unknown,
            };
        }
        self.clients[client].renewal = LEASE;
    }

    /// Ends the current attempt; its id is never used again.
    pub(crate) fn abandon(&mut self, config: &Config, client: usize) {
        let owner = self.owner(client);
        for end in self.ends_mut(client) {
            end.abandon(config, owner);
            end.release(config);
        }
        let client = &mut self.clients[client];
        client.number += 1;
        (client.phase, client.valid, client.renewal) = (Phase::Idle, 0, 0);
    }

    /// Counts the servers in a status.
    fn count(&self, config: &Config, client: usize, is_in: impl Fn(Status) -> bool) -> usize {
        let ends = self.ends(client).filter(|end| is_in(end.status));
        ends.map(|end| {
            if end.twice && !config.rules.one_vote {
                2
            } else {
                1
            }
        })
        .sum()
    }

    /// Performs every action that needs no further message.
    pub(crate) fn settle(&mut self, config: &Config, client: usize) {
        let (owner, rules) = (self.owner(client), config.rules);
        let needed = config.setup.majority() - usize::from(!rules.majority);
        let is_granted = |status| matches!(status, Status::Granted(_));
        if self.clients[client].phase == Phase::Acquiring
            && self.count(config, client, is_granted) >= needed
        {
            let tokens = self.ends(client).filter_map(|end| match end.status {
                Status::Granted(token) => Some(token),
                _ => None,
            });
            self.clients[client].phase = Phase::Confirming(tokens.max().unwrap_or_default());
        }
        let phase = self.clients[client].phase;
        if let Phase::Confirming(token) | Phase::Holding(token) = phase {
            for end in self.ends_mut(client).filter(|end| end.up) {
                if matches!(end.status, Status::Granted(less) if less < token) && rules.written_back
                {
                    end.send(owner, Script::Confirm(token));
                    end.status = Status::Confirming;
                }
            }
        }
        match phase {
            Phase::Confirming(token) => {
                let has = |status| match status {
                    Status::Granted(other) => other == token || !rules.written_back,
                    _ => false,
                };
                let may_have = |status| match status {
                    Status::Granted(other) => other <= token,
                    status => matches!(status, Status::Acquiring | Status::Confirming),
                };
                if self.count(config, client, has) >= needed {
                    self.inverted |= token <= self.last;
                    self.last = self.last.max(token);
                    let client = &mut self.clients[client];
                    client.phase = Phase::Holding(token);
                    if !rules.from_start {
                        client.valid = LEASE;
                    }
                } else if self.count(config, client, may_have) < needed {
                    self.abandon(config, client);
                }
            }
            Phase::Acquiring => {
                let may_grant = |status| status == Status::Acquiring || is_granted(status);
                if self.count(config, client, may_grant) < needed {
                    self.abandon(config, client);
                }
            }
            Phase::Holding(_) => {
                let majority = config.setup.majority();
                let needed = if rules.quorum_extends { majority } else { 1 };
                if self.count(config, client, |status| status == Status::Renewed) >= needed {
                    let client = &mut self.clients[client];
                    client.valid = client.valid.max(client.renewal);
                }
            }
            _ => {}
        }
        for end in self.ends_mut(client) {
            end.release(config);
        }
    }

    /// Handles a reply.
    pub(crate) fn handle(&mut self, config: &Config, client: usize, node: usize, reply: Reply) {
        let (owner, phase) = (self.owner(client), self.clients[client].phase);
        let end = &mut self.columns[node].ends[client];
        if reply.body == Body::Released {
            end.released.set(reply.owner, false);
            if !end.again.contains(reply.owner) {
                end.owed.set(reply.owner, false);
            }
        } else if reply.owner == owner {
            end.status = match (end.status, reply.body, phase) {
                (_, Body::Granted(token), _) => Status::Granted(token),
                (
                    Status::Confirming,
                    Body::Holds,
                    Phase::Confirming(token) | Phase::Holding(token),
                ) => Status::Granted(token),
                (Status::Renewing(true), Body::Holds, _) => Status::Renewed,
                (Status::Renewing(_), Body::Lacks, Phase::Holding(token)) => {
                    end.send(owner, Script::Repair(token));
                    Status::Repairing
                }
                _ => Status::Unknown,
            };
        }
        self.settle(config, client);
    }
}
