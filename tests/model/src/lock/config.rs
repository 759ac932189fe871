//! The parts that only this model has: its durations and faults.

use std::fmt;

use crate::explore::{Report, Search, run};
use crate::scenario::{Scenario, Setup, faults};

pub use distlock::__inside::Rules;

/// Ticks until a command is too late to be applied, and its client stops waiting for the reply.
pub(crate) const DEADLINE: u8 = 1;

/// The maximum number of commands in flight on one connection.
pub(crate) const PIPE: usize = 2;

/// Durations in ticks, and an option of the clients.
///
/// There is no grace period: a claim that holds without it holds with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    /// Ticks for which a confirmed holder considers the lock held, from the send.
    pub lease: u8,
    /// Ticks for which a pushed grant is valid until it is confirmed.
    pub grant: u8,
    /// Set if a client may confirm a fresh grant first: its estimate of server time is too old.
    pub doubt: bool,
}

/// The shortest durations that still differ from each other.
pub(crate) const SHORT: Durations = Durations {
    lease: 2,
    grant: 1,
    doubt: false,
};

/// Durations with which a grant may be a tick old and is still valid.
pub(crate) const LONG: Durations = Durations {
    lease: 3,
    grant: 2,
    doubt: true,
};

impl fmt::Display for Durations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let doubt = if self.doubt { ", doubt" } else { "" };
        write!(f, ", {}/{} ticks{doubt}", self.lease, self.grant)
    }
}

impl Setup for Durations {
    type Rules = Rules;
    type Faults = Faults;

    fn run(scenario: &Config, search: Search) -> Report {
        run(scenario.clone(), &scenario.check, search)
    }
}

/// A scenario of this model.
pub type Config = Scenario<Durations>;

faults! {
    /// A client gives up a connection. Replies and pushes in flight are lost. Commands in flight
    /// are applied later, in order, or a suffix of them is not.
    cuts,
    /// The server closes a connection. Commands in flight are lost, replies in flight still arrive.
    closes,
    /// A release and another command are applied in reverse order, as on two connections.
    overtakes,
    /// A client crashes. The server may notice late or never.
    crashes,
    /// The server loses its data; connections stay.
    flushes,
    /// The server refuses writes for a while.
    refusals,
    /// A call's `wait` ends, or its future is dropped.
    give_ups,
    /// Ticks that pass although a message could be delivered or a client had something to do, as
    /// with a slow network or a paused client.
    late_ticks,
}
