//! What a client does on its own: it asks, yields, confirms, holds and releases as what it knows makes it.

use super::config::{Config, GRANT, LEASE};
use super::state::{Client, End, Phase, Stand, State};
use super::wire::{Command, Message, Owner};

impl End {
    fn send(&mut self, command: Command) {
        self.to_node.push(command);
    }

    /// The attempt is over here.
    fn abandon(&mut self, config: &Config, owner: Owner) {
        let is_known = self.stand.vote().is_some()
            || matches!(self.stand, Stand::Queued | Stand::Yielding(..));
        if self.asked && (is_known || config.rules.releases_unanswered) {
            self.owed.add(owner);
        }
        self.stand = Stand::Away;
        (self.lower, self.asked, self.renewing) = (false, false, false);
        (self.age, self.proof) = (0, 0);
        self.fresh = true;
    }

    /// The connection is of no use any more.
    pub(crate) fn lose(&mut self, config: &Config, phase: Phase) {
        self.up = false;
        self.old = self.to_node;
        self.late |= self.old.iter().any(|command| command.has_deadline());
        self.to_node.clear();
        self.to_client.clear();
        self.released = Default::default();
        (self.lower, self.renewing) = (false, false);
        self.stand = match self.stand {
            Stand::Yielding(token, _) if config.rules.yield_again => Stand::Yielding(token, false),
            Stand::Confirmed(token) if matches!(phase, Phase::Holding(_)) => {
                Stand::Confirmed(token)
            }
            _ => Stand::Away,
        };
        if !matches!(self.stand, Stand::Confirmed(_)) {
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

    /// Does all that is to be done at once.
    pub(crate) fn settle(&mut self, config: &Config, client: usize) {
        if self.clients[client].crashed {
            return;
        }
        let reachable = self.ends(client).filter(|end| end.up).count();
        match self.clients[client].phase {
            Phase::Asking | Phase::Confirming(_)
                if reachable < config.quorum && config.rules.leaves =>
            {
                self.abandon(config, client, Phase::Cut);
            }
            Phase::Cut if reachable >= config.quorum => self.begin(client),
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
        let asks = matches!(phase, Phase::Asking | Phase::Confirming(_));
        let is_queued = self.ends(client).any(|end| end.stand == Stand::Queued);
        for end in self.ends_mut(client) {
            if !end.up {
                continue;
            }
            // What was given back is given back before anything else is said.
            if let Stand::Yielding(token, false) = end.stand {
                end.send(Command::Yield(owner, token));
                end.stand = Stand::Yielding(token, true);
            }
            for over in end.owed.iter() {
                let is_to_wait = end.late && end.again.contains(over);
                if !end.released.contains(over) && !is_to_wait {
                    // What is late may come behind it.
                    if end.late && config.rules.releases_again {
                        end.again.add(over);
                    } else {
                        end.again.remove(over);
                    }
                    end.released.add(over);
                    end.send(Command::Release(over, hands_on));
                }
            }
            if asks && end.stand == Stand::Away && end.fresh {
                end.send(Command::Ask(owner, (!is_queued).then_some(named)));
                end.stand = Stand::Asking;
                (end.fresh, end.asked, end.age) = (false, true, 0);
            }
        }
    }

    fn votes_count(&mut self, config: &Config, client: usize) {
        let (owner, rules) = (self.owner(client), config.rules);
        let votes = self.votes(client);
        if self.clients[client].phase == Phase::Asking && votes >= config.quorum {
            let tokens = self.ends(client).filter_map(|end| end.stand.vote());
            let token = if rules.confirms_largest {
                tokens.max()
            } else {
                tokens.min()
            };
            self.clients[client].phase = Phase::Confirming(token.unwrap_or(0));
        }
        if let Phase::Confirming(_) = self.clients[client].phase
            && votes < config.quorum
        {
            self.clients[client].phase = Phase::Asking;
        }
        // A vote that comes later may be newer than a hold that has come and gone meanwhile.
        if let Phase::Confirming(token) = self.clients[client].phase
            && rules.rises
        {
            let tokens = self.ends(client).filter_map(|end| end.stand.vote());
            let largest = tokens.max().unwrap_or(0).max(token);
            self.clients[client].phase = Phase::Confirming(largest);
        }
        match self.clients[client].phase {
            phase @ (Phase::Confirming(token) | Phase::Holding(token)) => {
                let holds = matches!(phase, Phase::Holding(_));
                for end in self.ends_mut(client).filter(|end| end.up) {
                    let is_to_confirm = match end.stand {
                        Stand::Vote(newer) => !holds || newer <= token || !rules.confirms_largest,
                        // An answer that came too late proves nothing.
                        Stand::Confirmed(other) => {
                            other != token || !holds && end.proof == 0 && rules.confirms_again
                        }
                        _ => false,
                    };
                    if is_to_confirm {
                        end.send(Command::Confirm(owner, token));
                        end.stand = Stand::Confirming(token);
                        end.age = 0;
                        if !rules.waits_for_confirmations {
                            end.proof = LEASE;
                        }
                    }
                }
                self.begins(config, client);
            }
            Phase::Asking if rules.yields => {
                let somewhere = self.ends(client).any(|end| end.lower);
                for end in self.ends_mut(client) {
                    let is_lower = end.lower || somewhere && !rules.yields_where_lower;
                    if let Stand::Vote(token) | Stand::Confirmed(token) = end.stand
                        && is_lower
                    {
                        // What it said before proves nothing any more.
                        (end.stand, end.proof) = (Stand::Yielding(token, false), 0);
                        // Until a fresh grant there.
                        end.lower &= !rules.yields_where_lower;
                    }
                }
            }
            _ => {}
        }
    }

    /// The body begins once a quorum has confirmed this token.
    fn begins(&mut self, config: &Config, client: usize) {
        let Phase::Confirming(token) = self.clients[client].phase else {
            return;
        };
        let waits = config.rules.waits_for_confirmations;
        let proven = self.ends(client).filter(|end| match end.stand {
            Stand::Confirmed(of) => of == token && end.proof > 0,
            Stand::Confirming(_) => !waits,
            _ => false,
        });
        if proven.count() >= config.quorum {
            self.inverted |= token <= self.last;
            self.last = self.last.max(token);
            self.clients[client].phase = Phase::Holding(token);
        }
    }

    /// Reads an answer or a push.
    pub(crate) fn hear(&mut self, config: &Config, client: usize, node: usize, message: Message) {
        let (owner, phase) = (self.owner(client), self.clients[client].phase);
        let end = &mut self.columns[node].ends[client];
        let yields = matches!(end.stand, Stand::Yielding(..));
        let has_confirmed = matches!(end.stand, Stand::Confirming(_) | Stand::Confirmed(_));
        let waits = matches!(
            phase,
            Phase::Asking | Phase::Confirming(_) | Phase::Holding(_)
        );
        match message {
            Message::Released(over) => {
                end.released.remove(over);
                if !end.again.contains(over) {
                    end.owed.remove(over);
                }
            }
            _ if message.owner() != owner || !waits => {}
            Message::Yielded(_) => {
                if yields {
                    end.stand = Stand::Queued;
                }
            }
            Message::Confirmed(_, token) => {
                end.renewing = false;
                let is_asked = end.stand == Stand::Asking;
                if let Stand::Away | Stand::Queued | Stand::NotVoting | Stand::Vote(_) = end.stand
                    && !matches!(phase, Phase::Holding(_))
                {
                    // Since when is not known: there was a push in between.
                    end.stand = Stand::Vote(token);
                } else if !yields {
                    end.proof = end.proof.max(LEASE.saturating_sub(end.age));
                    if is_asked
                        || matches!(end.stand, Stand::Confirming(_))
                        || matches!(phase, Phase::Holding(_))
                    {
                        end.stand = Stand::Confirmed(token);
                    }
                }
            }
            Message::Refused(_) => {
                end.renewing = false;
                end.proof = 0;
                if has_confirmed {
                    end.stand = Stand::Away;
                    end.fresh = true;
                }
            }
            Message::Free(_) => {
                end.renewing = false;
                if let Phase::Holding(token) = phase {
                    end.send(Command::Repair(owner, token));
                    end.renewing = true;
                    end.age = if config.rules.current_holds { LEASE } else { 0 };
                }
            }
            Message::Newer(_, token) => {
                if matches!(end.stand, Stand::Confirming(_)) {
                    (end.stand, end.proof) = (Stand::Vote(token), 0);
                }
            }
            _ if yields || has_confirmed => {
                if message == Message::Lower(owner) && has_confirmed {
                    end.lower = true;
                }
            }
            Message::Granted(_, token) => {
                end.stand = Stand::Vote(token);
                end.lower = false;
            }
            Message::HandedOn(_, token, left) => {
                end.stand = Stand::Confirmed(token);
                end.proof = if config.rules.ages { left } else { GRANT };
                end.lower = false;
            }
            Message::Yours(_, token, lower) => {
                end.stand = Stand::Vote(token);
                end.lower = lower;
            }
            Message::Queued(_) => end.stand = Stand::Queued,
            Message::NotVoting(_) => end.stand = Stand::NotVoting,
            Message::Lower(_) => end.lower |= end.stand.vote().is_some(),
        }
        self.settle(config, client);
    }
}
