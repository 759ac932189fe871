//! One state of the whole system: nodes, clients, and the messages in flight between them.

use std::hash::{Hash, Hasher};

use super::config::{Config, Faults};
use super::node::Node;
use super::wire::{Command, Owner, Owners, Reply};
use crate::List;
use crate::hashing::pack;
use crate::tokens::{Token, Tokens};

/// A client's knowledge of its attempt on one node. At most one command of it is in flight there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Status {
    /// Nothing is in flight, and nothing is known.
    #[default]
    Unknown,
    /// The acquire is in flight.
    Acquiring,
    /// The node has granted the lock, or confirmed it, with this token.
    Granted(Token),
    /// A confirmation is in flight.
    Confirming,
    /// A renewal is in flight; true if it is the latest one.
    Renewing(bool),
    /// The node has answered the latest renewal.
    Renewed,
    /// A repair is in flight.
    Repairing,
}

/// A client's end of the connection to one node, and the messages in flight between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct End {
    /// Set while the connection works.
    pub(crate) up: bool,
    /// Set if the client's address of this node leads to another node.
    pub(crate) astray: bool,
    /// Set if two addresses lead the client to this node.
    pub(crate) twice: bool,
    pub(crate) status: Status,
    /// Set once the current attempt has sent something to this node.
    pub(crate) used: bool,
    /// Set while a command on a lost connection may still take the lock.
    pub(crate) late: bool,
    /// Ended attempts that must be released on this node.
    pub(crate) owed: Owners,
    /// Attempts of `owed` with a release in flight.
    pub(crate) released: Owners,
    /// Attempts of `owed` to be released again, after the late commands.
    pub(crate) again: Owners,
    /// Commands in flight.
    pub(crate) to_node: List<Command, 8>,
    /// Replies in flight.
    pub(crate) to_client: List<Reply, 8>,
    /// Commands in flight on the previous connection.
    pub(crate) old: List<Command, 8>,
}

/// A node and the connections to it. Nodes are interchangeable, so columns are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Column<const C: usize> {
    pub(crate) node: Node,
    pub(crate) ends: [End; C],
}

/// The phase of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// The client has no call, or its call waits to try again.
    #[default]
    Idle,
    /// Too few nodes have granted.
    Acquiring,
    /// A majority has granted, and confirms this token.
    Confirming(Token),
    /// The body runs.
    Holding(Token),
    /// The body runs, and has been notified that the hold is lost.
    Lost,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    /// The number of attempts so far.
    pub(crate) number: u8,
    pub(crate) phase: Phase,
    /// Ticks for which the attempt or the hold is valid.
    pub(crate) valid: u8,
    /// Ticks for which the latest renewal makes it valid.
    pub(crate) renewal: u8,
}

impl Client {
    pub(crate) fn has_begun(self) -> bool {
        self.number > 0 || self.phase != Phase::Idle
    }
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
        let steps = (self.faults, self.last, self.inverted);
        hasher.write(&pack((&self.columns, &self.clients, steps)));
    }
}

impl<const N: usize, const C: usize> State<N, C> {
    pub(crate) fn initial(config: &Config) -> Self {
        let up = End {
            up: true,
            ..End::default()
        };
        let column = Column {
            node: Node::default(),
            ends: [up; C],
        };
        State {
            columns: [column; N],
            clients: [Client::default(); C],
            faults: config.faults,
            last: 0,
            inverted: false,
        }
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
        let columns = self.columns.iter_mut();
        columns.map(move |column| &mut column.ends[client])
    }

    /// Returns true if a body has a valid hold.
    pub(crate) fn is_valid(&self, client: usize) -> bool {
        let client = self.clients[client];
        matches!(client.phase, Phase::Holding(_)) && client.valid > 0
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
        }
        for column in &mut self.columns {
            visit(&mut column.node.fence);
            if let Some(lock) = &mut column.node.lock {
                visit(&mut lock.token);
            }
            for end in &mut column.ends {
                if let Status::Granted(token) = &mut end.status {
                    visit(token);
                }
                let commands = end.to_node.iter_mut().chain(&mut end.old);
                commands
                    .filter_map(|command| command.script.token_mut())
                    .for_each(&mut visit);
                for reply in end.to_client.iter_mut() {
                    if let super::wire::Body::Granted(token) = &mut reply.body {
                        visit(token);
                    }
                }
            }
        }
    }
}
