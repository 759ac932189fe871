//! One state of the whole system: nodes, clients, and the messages in flight between them.

use std::hash::{Hash, Hasher};

use super::config::{Config, Faults};
use super::node::Node;
use super::wire::{Command, Message, Owner, Owners};
use crate::List;
use crate::hashing::pack;
use crate::tokens::{Token, Tokens};

/// A client's knowledge of its attempt on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Status {
    /// No knowledge; the client will acquire.
    #[default]
    Away,
    /// The client has sent its acquire.
    Acquiring,
    /// The attempt is queued.
    Queued,
    NotVoting,
    /// The attempt has the vote, with this token.
    Vote(Token),
    /// The attempt has the vote, and the client has sent a confirmation.
    Confirming(Token),
    /// The node has confirmed this token.
    Confirmed(Token),
    /// The client yields the vote of this token; true if the yield was sent on this connection.
    Yielding(Token, bool),
}

impl Status {
    /// Returns the token of the vote, if the attempt has one.
    pub(crate) fn vote(self) -> Option<Token> {
        match self {
            Status::Vote(token) | Status::Confirming(token) | Status::Confirmed(token) => {
                Some(token)
            }
            _ => None,
        }
    }
}

/// A client's end of the connection to one node, and the messages in flight between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct End {
    /// Set while the connection works.
    pub(crate) up: bool,
    /// Set if the connection can no longer be opened.
    pub(crate) severed: bool,
    pub(crate) status: Status,
    /// Set if a lower ticket waits on this node.
    pub(crate) lower: bool,
    /// Set once the current attempt has sent an acquire to this node.
    pub(crate) requested: bool,
    /// Set if the client may acquire or renew, which it may do once between two ticks.
    pub(crate) fresh: bool,
    /// Set while an acquire on a lost connection may still be applied.
    pub(crate) late: bool,
    /// Ticks since the first acquire, the confirmation or the renewal in flight was sent.
    pub(crate) age: u8,
    /// Ticks for which this node's last confirmation is valid.
    pub(crate) proof: u8,
    /// Ended attempts that must be released on this node.
    pub(crate) owed: Owners,
    /// Attempts of `owed` with a release in flight.
    pub(crate) released: Owners,
    /// Attempts of `owed` to be released again, after the late commands.
    pub(crate) again: Owners,
    /// Set while a renewal or a repair is in flight.
    pub(crate) renewing: bool,
    /// Commands in flight.
    pub(crate) to_node: List<Command, 16>,
    /// Replies and pushes in flight.
    pub(crate) to_client: List<Message, 16>,
    /// Commands in flight on the previous connection.
    pub(crate) old: List<Command, 16>,
}

/// A node and the connections to it. Nodes are interchangeable, so columns are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Column<const C: usize> {
    pub(crate) node: Node,
    pub(crate) ends: [End; C],
}

/// The phase of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The client has no call.
    #[default]
    Idle,
    /// The client can reach too few nodes, and is queued on none.
    Cut,
    /// The attempt has too few votes.
    Acquiring,
    /// The attempt has enough votes, and confirms them with this token.
    Confirming(Token),
    /// The body runs.
    Holding(Token),
    /// The body runs, and has been notified that the hold is lost.
    Lost,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Client {
    pub(crate) crashed: bool,
    /// The number of calls that the client will still make.
    pub(crate) calls: u8,
    /// The number of attempts so far.
    pub(crate) number: u8,
    pub(crate) phase: Phase,
    /// The token that the attempt names.
    pub(crate) named: Token,
    /// The token that a release names for the next owner.
    pub(crate) handed: Token,
}

/// The whole system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State<const N: usize, const C: usize> {
    pub(crate) columns: [Column<C>; N],
    pub(crate) clients: [Client; C],
    /// Faults that may still happen.
    pub(crate) faults: Faults,
    /// The token of the body that started last.
    pub(crate) last: Token,
    /// Set if a body started with a token that was not above the last one.
    pub(crate) inverted: bool,
}

impl<const N: usize, const C: usize> Hash for State<N, C> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let whole = (
            &self.columns,
            &self.clients,
            self.faults,
            self.last,
            self.inverted,
        );
        hasher.write(&pack(whole));
    }
}

impl<const N: usize, const C: usize> State<N, C> {
    pub(crate) fn initial(config: &Config) -> Self {
        let end = End {
            up: true,
            fresh: true,
            ..End::default()
        };
        let mut state = State {
            columns: [Column {
                node: Node::default(),
                ends: [end; C],
            }; N],
            clients: std::array::from_fn(|client| Client {
                calls: config.calls[client],
                ..Client::default()
            }),
            faults: config.faults,
            last: 0,
            inverted: false,
        };
        for column in state.columns.iter_mut().rev().take(config.setup.down) {
            column.node.down = true;
            for end in &mut column.ends {
                end.up = false;
            }
        }
        state.arrange();
        state
    }

    /// Sorts the columns, because their order does not matter. Returns their previous places.
    pub(crate) fn arrange(&mut self) -> [usize; N] {
        let mut order: [usize; N] = std::array::from_fn(|place| place);
        order.sort_by_cached_key(|place| pack(self.columns[*place]));
        let columns = self.columns;
        self.columns = order.map(|place| columns[place]);
        order
    }

    pub(crate) fn owner(&self, client: usize) -> Owner {
        Owner::new(client, self.clients[client].number)
    }

    pub(crate) fn ends(&self, client: usize) -> impl Iterator<Item = &End> {
        self.columns.iter().map(move |column| &column.ends[client])
    }

    pub(crate) fn ends_mut(&mut self, client: usize) -> impl Iterator<Item = &mut End> {
        self.columns
            .iter_mut()
            .map(move |column| &mut column.ends[client])
    }

    pub(crate) fn votes(&self, client: usize) -> usize {
        let votes = self.ends(client).filter(|end| end.status.vote().is_some());
        votes.count()
    }

    /// Returns true if a body has a valid hold, which is one with valid confirmations of a quorum.
    pub(crate) fn is_valid(&self, client: usize, quorum: usize) -> bool {
        let Client { phase, crashed, .. } = self.clients[client];
        matches!(phase, Phase::Holding(_))
            && !crashed
            && self.ends(client).filter(|end| end.proof > 0).count() >= quorum
    }

    /// Begins a new attempt.
    pub(crate) fn begin(&mut self, client: usize) {
        let named = self.newest() + 1;
        let client = &mut self.clients[client];
        (client.phase, client.named) = (Phase::Acquiring, named);
    }

    /// Makes room above each token for a new one, which is just above what its node knows and below
    /// all other tokens.
    pub(crate) fn spread_tokens(&mut self) {
        self.each_token(|token| *token *= 2);
    }
}

impl<const N: usize, const C: usize> Tokens for State<N, C> {
    fn each_token(&mut self, mut visit: impl FnMut(&mut Token)) {
        visit(&mut self.last);
        for client in &mut self.clients {
            if let Phase::Confirming(token) | Phase::Holding(token) = &mut client.phase {
                visit(token);
            }
            visit(&mut client.named);
            visit(&mut client.handed);
        }
        for column in &mut self.columns {
            visit(&mut column.node.fence);
            if let Some(lock) = &mut column.node.lock {
                visit(&mut lock.token);
            }
            for end in &mut column.ends {
                if let Status::Vote(token)
                | Status::Confirming(token)
                | Status::Confirmed(token)
                | Status::Yielding(token, _) = &mut end.status
                {
                    visit(token);
                }
                let commands = end.to_node.iter_mut().chain(&mut end.old);
                let sent = commands.filter_map(|command| command.script.token_mut());
                let messages = end.to_client.iter_mut();
                let received = messages.filter_map(|message| message.body.token_mut());
                sent.chain(received).for_each(&mut visit);
            }
        }
    }
}
