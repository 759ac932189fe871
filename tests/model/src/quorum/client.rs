//! The actions of a client: acquiring, yielding, confirming, holding and releasing.

use super::config::{Config, GRANT, LEASE};
use super::state::{Client, End, Phase, State, Status};
use super::wire::{Body, Command, Message, Owner, Script};
use crate::tokens::Tokens as _;

impl End {
    pub(crate) fn send(&mut self, owner: Owner, script: Script) {
        self.to_node.push(Command { owner, script });
    }

    /// Ends the attempt on this node.
    fn abandon(&mut self, config: &Config, owner: Owner) {
        let is_known = self.status.vote().is_some()
            || matches!(self.status, Status::Queued | Status::Yielding(..));
        if self.requested && (is_known || config.rules.releases_unanswered) {
            self.owed.add(owner);
        }
        self.status = Status::Away;
        (self.lower, self.requested, self.renewing) = (false, false, false);
        (self.age, self.proof) = (0, 0);
        self.fresh = true;
    }

    /// Gives up the connection.
    pub(crate) fn lose(&mut self, config: &Config, phase: Phase) {
        self.up = false;
        self.old = self.to_node;
        self.late |= self.old.iter().any(|command| command.script.has_deadline());
        self.to_node.clear();
        self.to_client.clear();
        self.released = Default::default();
        (self.lower, self.renewing) = (false, false);
        self.status = match self.status {
            Status::Yielding(token, _) if config.rules.yield_again => {
                Status::Yielding(token, false)
            }
            Status::Confirmed(token) if matches!(phase, Phase::Holding(_)) => {
                Status::Confirmed(token)
            }
            _ => Status::Away,
        };
        if !matches!(self.status, Status::Confirmed(_)) {
            self.proof = 0;
        }
        self.fresh = true;
    }
}

impl<const N: usize, const C: usize> State<N, C> {
    /// Ends the current attempt; its id is never used again.
    pub(crate) fn abandon(&mut self, config: &Config, client: usize, phase: Phase) {
        let (owner, handed) = (self.owner(client), self.newest() + 1);
        for end in self.ends_mut(client) {
            end.abandon(config, owner);
        }
        let client = &mut self.clients[client];
        client.number += 1;
        (client.phase, client.named, client.handed) = (phase, 0, handed);
    }

    /// Performs every action that needs no further message.
    pub(crate) fn settle(&mut self, config: &Config, client: usize) {
        if self.clients[client].crashed {
            return;
        }
        let reachable = self.ends(client).filter(|end| end.up).count();
        match self.clients[client].phase {
            Phase::Acquiring | Phase::Confirming(_)
                if reachable < config.setup.quorum() && config.rules.leaves =>
            {
                self.abandon(config, client, Phase::Cut);
            }
            Phase::Cut if reachable >= config.setup.quorum() => self.begin(client),
            _ => {}
        }
        self.votes_count(config, client);
        let owner = self.owner(client);
        let Client {
            phase,
            named,
            handed,
            ..
        } = self.clients[client];
        let hands_on = (handed > 0).then_some(handed);
        self.clients[client].handed = 0;
        let is_acquiring = matches!(phase, Phase::Acquiring | Phase::Confirming(_));
        let is_queued = self.ends(client).any(|end| end.status == Status::Queued);
        for end in self.ends_mut(client) {
            if !end.up {
                continue;
            }
            // A yield is sent before any other command.
            if let Status::Yielding(token, false) = end.status {
                end.send(owner, Script::Yield(token));
                end.status = Status::Yielding(token, true);
            }
            for over in end.owed.iter() {
                let is_to_wait = end.late && end.again.contains(over);
                if !end.released.contains(over) && !is_to_wait {
                    // A late command may arrive after the release.
                    if end.late && config.rules.releases_again {
                        end.again.add(over);
                    } else {
                        end.again.remove(over);
                    }
                    end.released.add(over);
                    end.send(over, Script::Release(hands_on));
                }
            }
            if is_acquiring && end.status == Status::Away && end.fresh {
                end.send(owner, Script::Acquire((!is_queued).then_some(named)));
                end.status = Status::Acquiring;
                (end.fresh, end.requested, end.age) = (false, true, 0);
            }
        }
    }

    fn votes_count(&mut self, config: &Config, client: usize) {
        let (owner, rules) = (self.owner(client), config.rules);
        let votes = self.votes(client);
        if self.clients[client].phase == Phase::Acquiring && votes >= config.setup.quorum() {
            let tokens = self.ends(client).filter_map(|end| end.status.vote());
            let token = if rules.confirms_largest {
                tokens.max()
            } else {
                tokens.min()
            };
            self.clients[client].phase = Phase::Confirming(token.unwrap_or(0));
        }
        if let Phase::Confirming(_) = self.clients[client].phase
            && votes < config.setup.quorum()
        {
            self.clients[client].phase = Phase::Acquiring;
        }
        // A late vote may be newer than a hold that has begun and ended meanwhile.
        if let Phase::Confirming(token) = self.clients[client].phase
            && rules.rises
        {
            let tokens = self.ends(client).filter_map(|end| end.status.vote());
            let largest = tokens.max().unwrap_or(0).max(token);
            self.clients[client].phase = Phase::Confirming(largest);
        }
        match self.clients[client].phase {
            phase @ (Phase::Confirming(token) | Phase::Holding(token)) => {
                let holds = matches!(phase, Phase::Holding(_));
                for end in self.ends_mut(client).filter(|end| end.up) {
                    let is_to_confirm = match end.status {
                        Status::Vote(newer) => !holds || newer <= token || !rules.confirms_largest,
                        // A reply that arrived too late proves nothing.
                        Status::Confirmed(other) => {
                            other != token || !holds && end.proof == 0 && rules.confirms_again
                        }
                        _ => false,
                    };
                    if is_to_confirm {
                        end.send(owner, Script::Confirm(token));
                        end.status = Status::Confirming(token);
                        end.age = 0;
                        if !rules.waits_for_confirmations {
                            end.proof = LEASE;
                        }
                    }
                }
                self.begins(config, client);
            }
            Phase::Acquiring if rules.yields => {
                let somewhere = self.ends(client).any(|end| end.lower);
                for end in self.ends_mut(client) {
                    let is_lower = end.lower || somewhere && !rules.yields_where_lower;
                    if let Status::Vote(token) | Status::Confirmed(token) = end.status
                        && is_lower
                    {
                        // Earlier confirmations no longer prove anything.
                        (end.status, end.proof) = (Status::Yielding(token, false), 0);
                        // The mark can be set again after a new grant on this node.
                        end.lower &= !rules.yields_where_lower;
                    }
                }
            }
            _ => {}
        }
    }

    /// Begins the body once a quorum has confirmed this token.
    fn begins(&mut self, config: &Config, client: usize) {
        let Phase::Confirming(token) = self.clients[client].phase else {
            return;
        };
        let waits = config.rules.waits_for_confirmations;
        let proven = self.ends(client).filter(|end| match end.status {
            Status::Confirmed(of) => of == token && end.proof > 0,
            Status::Confirming(_) => !waits,
            _ => false,
        });
        if proven.count() >= config.setup.quorum() {
            self.inverted |= token <= self.last;
            self.last = self.last.max(token);
            self.clients[client].phase = Phase::Holding(token);
        }
    }

    /// Handles a reply or a push.
    pub(crate) fn handle(&mut self, config: &Config, client: usize, node: usize, message: Message) {
        let (owner, phase) = (self.owner(client), self.clients[client].phase);
        let end = &mut self.columns[node].ends[client];
        let yields = matches!(end.status, Status::Yielding(..));
        let has_confirmed = matches!(end.status, Status::Confirming(_) | Status::Confirmed(_));
        let waits = matches!(
            phase,
            Phase::Acquiring | Phase::Confirming(_) | Phase::Holding(_)
        );
        match message.body {
            Body::Released => {
                end.released.remove(message.owner);
                if !end.again.contains(message.owner) {
                    end.owed.remove(message.owner);
                }
            }
            _ if message.owner != owner || !waits => {}
            Body::Yielded => {
                if yields {
                    end.status = Status::Queued;
                }
            }
            Body::Confirmed(token) => {
                end.renewing = false;
                let is_acquiring = end.status == Status::Acquiring;
                if let Status::Away | Status::Queued | Status::NotVoting | Status::Vote(_) =
                    end.status
                    && !matches!(phase, Phase::Holding(_))
                {
                    // The send time of the command is not known, because a push arrived in between.
                    end.status = Status::Vote(token);
                } else if !yields {
                    end.proof = end.proof.max(LEASE.saturating_sub(end.age));
                    if is_acquiring
                        || matches!(end.status, Status::Confirming(_))
                        || matches!(phase, Phase::Holding(_))
                    {
                        end.status = Status::Confirmed(token);
                    }
                }
            }
            Body::Refused => {
                end.renewing = false;
                end.proof = 0;
                if has_confirmed {
                    end.status = Status::Away;
                    end.fresh = true;
                }
            }
            Body::Free => {
                end.renewing = false;
                if let Phase::Holding(token) = phase {
                    end.send(owner, Script::Repair(token));
                    end.renewing = true;
                    end.age = if config.rules.current_holds { LEASE } else { 0 };
                }
            }
            Body::Newer(token) => {
                if matches!(end.status, Status::Confirming(_)) {
                    (end.status, end.proof) = (Status::Vote(token), 0);
                }
            }
            _ if yields || has_confirmed => {
                end.lower |= message.body == Body::Lower && has_confirmed;
            }
            Body::Granted(token) => {
                end.status = Status::Vote(token);
                end.lower = false;
            }
            Body::HandedOn(token, left) => {
                end.status = Status::Confirmed(token);
                end.proof = if config.rules.ages { left } else { GRANT };
                end.lower = false;
            }
            Body::Yours(token, lower) => {
                end.status = Status::Vote(token);
                end.lower = lower;
            }
            Body::Queued => end.status = Status::Queued,
            Body::NotVoting => end.status = Status::NotVoting,
            Body::Lower => end.lower |= end.status.vote().is_some(),
        }
        self.settle(config, client);
    }
}
