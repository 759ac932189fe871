//! The parts that only this model has: its rules, servers and faults.

use std::fmt;

use super::protocol::Nodes;
use crate::explore::{Report, Search, run};
use crate::scenario::{Scenario, Setup, faults, rules};

/// The ticks of a hold.
pub(crate) const LEASE: u8 = 2;

/// The ticks in which a node that lost its data grants nothing.
pub(crate) const QUARANTINE: u8 = LEASE;

rules! {
    /// A hold needs a majority of nodes.
    majority,
    /// Every node that counts for a hold knows its token.
    written_back,
    /// A hold is valid from the start of its attempt.
    from_start,
    /// A renewal needs a majority of nodes.
    quorum_extends,
    /// A hold that was not renewed in time has ended, whatever is renewed later.
    lapses,
    /// A node takes a floor token only if it is above all that the node knows.
    above_fence,
    /// A node that lost its data grants nothing for the longest lease.
    quarantine,
    /// A node that lost its data grants once its clock is above all earlier tokens.
    clock,
    /// A release is sent to every node of the attempt, whether it answered or not.
    released_everywhere,
    /// A release is repeated if a command on a lost connection may arrive after it.
    releases_again,
    /// A server counts once, whatever addresses reach it.
    one_vote,
}

faults! {
    /// A client gives up a connection. Replies are lost, commands are applied later or not.
    cuts,
    /// An address of one node leads a client to another node.
    strays,
    /// A node loses its data.
    losses,
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
}

impl Servers {
    /// Returns the smallest majority of the nodes.
    pub(crate) fn majority(self) -> usize {
        self.nodes / 2 + 1
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", {} nodes", self.nodes)
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
