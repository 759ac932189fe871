//! What is explored.

/// The rules that the quorum stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Who has too few votes gives them to lower tickets.
    pub yields: bool,
    /// Only the votes of nodes where a lower ticket waits.
    pub yields_where_lower: bool,
    /// A node tells its vote's owner that a lower ticket waits.
    pub tells_lower: bool,
    /// Also an owner that has confirmed.
    pub tells_confirmed: bool,
    /// A yield names the token that it is about.
    pub yield_names_token: bool,
    /// A yield is sent again until it is answered.
    pub yield_again: bool,
    /// An ask is confirmed at once only with a token above all that the node knows.
    pub names_newer: bool,
    /// What is handed on counts from when it was, not from when that is heard.
    pub ages: bool,
    /// All nodes of a hold are told its largest token.
    pub confirms_largest: bool,
    /// Also of those that come while the others are being confirmed.
    pub rises: bool,
    /// A node does not confirm less than the token of its vote.
    pub refuses_older: bool,
    /// A confirmation that was answered too late is asked for again.
    pub confirms_again: bool,
    /// The hold begins when a quorum has confirmed.
    pub waits_for_confirmations: bool,
    /// A node that forgot does not vote for the longest lease.
    pub quarantine: bool,
    /// It votes when its clock is above all earlier tokens.
    pub clock: bool,
    /// A release goes to all nodes that were asked, answered or not.
    pub releases_unanswered: bool,
    /// One that an ask on a lost connection may come behind is sent once more.
    pub releases_again: bool,
    /// A hold is over when too few of its proofs are left, whatever is renewed later.
    pub lapses: bool,
    /// Only what was held all the time proves a hold; not what was repaired.
    pub current_holds: bool,
    /// Who can reach too few nodes leaves the queues.
    pub leaves: bool,
}

impl Rules {
    /// All of them.
    pub const ALL: Rules = Rules {
        yields: true,
        yields_where_lower: true,
        tells_lower: true,
        tells_confirmed: true,
        yield_names_token: true,
        yield_again: true,
        names_newer: true,
        ages: true,
        confirms_largest: true,
        rises: true,
        refuses_older: true,
        confirms_again: true,
        waits_for_confirmations: true,
        quarantine: true,
        clock: true,
        releases_unanswered: true,
        releases_again: true,
        lapses: true,
        current_holds: true,
        leaves: true,
    };
}

/// How often something bad may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A client gives up a connection: answers are lost, commands are applied later or not.
    pub cuts: u8,
    /// A client cannot reach a node any more.
    pub severs: u8,
    /// A node is down, or frozen, until it comes back with its data.
    pub downs: u8,
    /// A node loses its data.
    pub losses: u8,
    /// A client is lost.
    pub crashes: u8,
    /// A call is given up.
    pub give_ups: u8,
    /// Ticks that pass although there is something to do.
    pub late_ticks: u8,
}

/// One exploration.
#[derive(Clone, Debug)]
pub struct Config {
    /// What it is called.
    pub name: &'static str,
    /// How many votes it takes.
    pub quorum: usize,
    /// How many calls each client makes.
    pub calls: &'static [u8],
    /// The rules in force.
    pub rules: Rules,
    /// What may go wrong.
    pub faults: Faults,
    /// Whether holds are renewed, and repaired.
    pub renewals: bool,
    /// Nodes that are down from the beginning, and stay so.
    pub down: usize,
    /// The most ticks until all are served, if nothing bad happens any more.
    pub served_within: u8,
    /// Only states at most so many steps away.
    pub depth: Option<usize>,
}

/// Ticks that a confirmed hold lasts.
pub(crate) const LEASE: u8 = 2;

/// Ticks that a vote lasts which is not asked for again.
pub(crate) const GRANT: u8 = 2;

/// Ticks in which a node that forgot does not vote.
pub(crate) const QUARANTINE: u8 = LEASE;
