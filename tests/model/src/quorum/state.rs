//! One moment of the whole: nodes, clients, and what is under way between each two of them.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use crate::list::List;

use super::config::{Config, Faults};
use super::node::Node;
use super::wire::{Command, Message, Owner, Owners, Token};

/// What a client knows of its attempt at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Stand {
    /// Nothing: it is to ask.
    #[default]
    Away,
    /// It has asked.
    Asking,
    /// It waits in the queue.
    Queued,
    /// The node does not vote.
    NotVoting,
    /// It has the vote, with this token.
    Vote(Token),
    /// It has the vote, and has sent a confirmation.
    Confirming(Token),
    /// It has confirmed, with this token.
    Confirmed(Token),
    /// It has given back the vote of this token; whether that was sent on this connection.
    Yielding(Token, bool),
}

impl Stand {
    /// The token of a vote.
    pub(crate) fn vote(self) -> Option<Token> {
        match self {
            Stand::Vote(token) | Stand::Confirming(token) | Stand::Confirmed(token) => Some(token),
            _ => None,
        }
    }
}

/// A client's end at one node, and what is under way between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct End {
    /// The connection works.
    pub(crate) up: bool,
    /// It cannot be opened any more.
    pub(crate) severed: bool,
    /// How the current attempt stands here.
    pub(crate) stand: Stand,
    /// A lower ticket waits here.
    pub(crate) lower: bool,
    /// The current attempt has asked here at least once.
    pub(crate) asked: bool,
    /// It may ask or renew: once between two ticks.
    pub(crate) fresh: bool,
    /// An ask on a lost connection may still be applied.
    pub(crate) late: bool,
    /// Ticks since the first ask, the confirmation or the renewal under way was sent.
    pub(crate) age: u8,
    /// Ticks for which this node's last word is good.
    pub(crate) proof: u8,
    /// Attempts that are over, and to be forgotten here.
    pub(crate) owed: Owners,
    /// Those of them whose release is under way.
    pub(crate) released: Owners,
    /// Those of them whose release is to be repeated, after what was late.
    pub(crate) again: Owners,
    /// A renewal, or a repair, is under way.
    pub(crate) renewing: bool,
    /// Commands under way.
    pub(crate) to_node: List<Command, 16>,
    /// Answers and pushes under way.
    pub(crate) to_client: List<Message, 16>,
    /// Commands under way on the connection before.
    pub(crate) old: List<Command, 16>,
}

/// A node with all that concerns it. Which node is which does not matter, so columns are kept in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Column<const C: usize> {
    /// The node.
    pub(crate) node: Node,
    /// Its clients' ends.
    pub(crate) ends: [End; C],
}

impl<const C: usize> Column<C> {
    /// A number by which columns are put in order; equal columns have the same.
    pub(crate) fn rank(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// Where a client is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It wants nothing.
    #[default]
    Idle,
    /// It can reach too few nodes, and stands nowhere.
    Cut,
    /// It has too few votes.
    Asking,
    /// It has enough votes, and has them confirmed with this token.
    Confirming(Token),
    /// Its body runs.
    Holding(Token),
    /// Its body runs, and has been told that the hold is lost.
    Lost,
}

/// One client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Client {
    /// It was lost.
    pub(crate) crashed: bool,
    /// Calls it will still make.
    pub(crate) calls: u8,
    /// Its attempts so far.
    pub(crate) number: u8,
    /// Where it is.
    pub(crate) phase: Phase,
    /// The token that its attempt names.
    pub(crate) named: Token,
    /// The token that it names for whoever is next, while it leaves.
    pub(crate) handed: Token,
}

/// The whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State<const N: usize, const C: usize> {
    /// The nodes.
    pub(crate) columns: [Column<C>; N],
    /// The clients.
    pub(crate) clients: [Client; C],
    /// What may still go wrong.
    pub(crate) faults: Faults,
    /// The token of the body that started last.
    pub(crate) last: Token,
    /// A body started with a token that was not above it.
    pub(crate) inverted: bool,
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
        for column in state.columns.iter_mut().rev().take(config.down) {
            column.node.down = true;
            for end in &mut column.ends {
                end.up = false;
            }
        }
        state
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
        let votes = self.ends(client).filter(|end| end.stand.vote().is_some());
        votes.count()
    }

    /// Whether a body believes to hold the lock: a quorum's word is good.
    pub(crate) fn is_valid(&self, client: usize, quorum: usize) -> bool {
        let who = &self.clients[client];
        matches!(who.phase, Phase::Holding(_))
            && !who.crashed
            && self.ends(client).filter(|end| end.proof > 0).count() >= quorum
    }

    fn each_token(&mut self, mut f: impl FnMut(&mut Token)) {
        f(&mut self.last);
        for client in &mut self.clients {
            if let Phase::Confirming(token) | Phase::Holding(token) = &mut client.phase {
                f(token);
            }
            f(&mut client.named);
            f(&mut client.handed);
        }
        for column in &mut self.columns {
            f(&mut column.node.fence);
            if let Some(lock) = &mut column.node.lock {
                f(&mut lock.token);
            }
            for end in &mut column.ends {
                if let Stand::Vote(token)
                | Stand::Confirming(token)
                | Stand::Confirmed(token)
                | Stand::Yielding(token, _) = &mut end.stand
                {
                    f(token);
                }
                for command in end.to_node.iter_mut().chain(end.old.iter_mut()) {
                    if let Command::Ask(_, Some(token))
                    | Command::Release(_, Some(token))
                    | Command::Yield(_, token)
                    | Command::Confirm(_, token)
                    | Command::Renew(_, token)
                    | Command::Repair(_, token) = command
                    {
                        f(token);
                    }
                }
                for message in end.to_client.iter_mut() {
                    if let Message::Granted(_, token)
                    | Message::Yours(_, token, _)
                    | Message::Newer(_, token)
                    | Message::Confirmed(_, token)
                    | Message::HandedOn(_, token, _) = message
                    {
                        f(token);
                    }
                }
            }
        }
    }

    /// A new attempt begins.
    pub(crate) fn begin(&mut self, client: usize) {
        let named = self.newest() + 1;
        let client = &mut self.clients[client];
        (client.phase, client.named) = (Phase::Asking, named);
    }

    pub(crate) fn newest(&mut self) -> Token {
        let mut newest = 0;
        self.each_token(|token| newest = newest.max(*token));
        newest
    }

    /// Leaves room for a new token above each: it is just above what its node knows, and below all others that are.
    pub(crate) fn spread_tokens(&mut self) {
        self.each_token(|token| *token *= 2);
    }

    /// Only the order of tokens matters: they are numbered, so that there are finitely many states.
    pub(crate) fn number_tokens(&mut self) {
        let mut used = 0_u64;
        self.each_token(|token| used |= 1 << *token);
        used &= !1;
        self.each_token(|token| {
            if *token != 0 {
                *token = (used & ((2 << *token) - 1)).count_ones() as Token;
            }
        });
    }
}
