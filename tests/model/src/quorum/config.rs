//! The parts that only this model has: its rules, servers and faults.

use std::fmt;

use super::protocol::Nodes;
use crate::explore::{Report, Search, run};
use crate::scenario::{Scenario, Setup, faults};

/// The ticks of a confirmed hold.
pub(crate) const LEASE: u8 = 2;

/// The ticks of a vote that is not requested again.
pub(crate) const GRANT: u8 = 2;

/// The ticks in which a node that lost its data does not vote.
pub(crate) const QUARANTINE: u8 = LEASE;

macro_rules! rules {
    ($($(#[$what:meta])* $rule:ident,)*) => {
        /// The rules that the quorum depends on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Rules {
            $($(#[$what])* pub $rule: bool,)*
        }

        impl Rules {
            /// All rules.
            pub const ALL: Rules = Rules { $($rule: true,)* };
        }
    };
}

rules! {
    /// A client with too few votes yields to lower tickets.
    yields,
    /// A client yields only the votes of nodes where a lower ticket waits.
    yields_where_lower,
    /// A node notifies the owner of its vote that a lower ticket waits.
    notifies_lower,
    /// A node also notifies an owner that has confirmed.
    notifies_confirmed,
    /// A yield names the token of the vote.
    yield_names_token,
    /// A yield is repeated until it is answered.
    yield_again,
    /// An acquire is confirmed at once only with a token above all that the node knows.
    names_newer,
    /// A handed-on lock is valid from when the node gave it, not from when the push is read.
    ages,
    /// All nodes of a hold confirm its largest token.
    confirms_largest,
    /// The largest token also counts votes that arrive while the others are being confirmed.
    rises,
    /// A node does not confirm a token below the token of its vote.
    refuses_older,
    /// A confirmation that was answered too late is repeated.
    confirms_again,
    /// A hold begins once a quorum has confirmed.
    waits_for_confirmations,
    /// A node that lost its data does not vote for the longest lease.
    quarantine,
    /// A node that lost its data votes once its clock is above all earlier tokens.
    clock,
    /// A release is sent to all nodes to which an acquire was sent, whether they answered or not.
    releases_unanswered,
    /// A release is repeated if an acquire on a lost connection may arrive after it.
    releases_again,
    /// A hold has ended once too few of its proofs are valid, whatever is renewed later.
    lapses,
    /// Only a lock that was held all the time proves a hold; a repaired one does not.
    current_holds,
    /// A client that can reach too few nodes leaves the queues.
    leaves,
}

faults! {
    /// A client gives up a connection. Replies are lost, commands are applied later or not.
    cuts,
    /// A client can no longer reach a node.
    severs,
    /// A node is down, or frozen, until it returns with its data.
    downs,
    /// A node loses its data.
    losses,
    /// A client crashes.
    crashes,
    /// A call is given up.
    give_ups,
    /// Ticks that pass although there is something to do.
    late_ticks,
}

/// The servers.
#[derive(Clone, Copy, Debug)]
pub struct Servers {
    /// The number of nodes: three or five.
    pub nodes: usize,
    /// The number of nodes that are down from the beginning, and stay down.
    pub down: usize,
}

impl Servers {
    /// Returns the number of votes that a hold needs.
    pub(crate) fn quorum(self) -> usize {
        self.nodes / 2 + 1
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", {} of {} nodes down", self.down, self.nodes)
    }
}

impl Setup for Servers {
    type Rules = Rules;
    type Faults = Faults;

    fn run(scenario: &Config, search: Search) -> Report {
        let (config, check) = (scenario.clone(), &scenario.check);
        match (scenario.setup.nodes, scenario.calls.len()) {
            (3, 2) => run(Nodes::<3, 2>(config), check, search),
            (3, 3) => run(Nodes::<3, 3>(config), check, search),
            (5, 3) => run(Nodes::<5, 3>(config), check, search),
            other => panic!("no case here runs {other:?} nodes and clients: add one"),
        }
    }
}

/// A scenario of this model.
pub type Config = Scenario<Servers>;
