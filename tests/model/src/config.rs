//! What is explored: the rules in force, the durations, who takes part, and which faults may happen.

pub use distlock::__inside::Rules;

/// The protocol where the server's user may not use `CLIENT KILL`: the second undo stands in.
pub const KILL_DENIED: Rules = Rules {
    kill_old: false,
    ..Rules::ALL
};

/// Durations, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// What a confirmed holder believes, counted from the send.
    pub lease: u8,
    /// What a pushed grant is good for until it is confirmed.
    pub grant: u8,
    /// How much longer than that the server keeps the key.
    pub grace: u8,
    /// A command's deadline: its apply-by, and when the client stops waiting for the answer.
    pub deadline: u8,
}

/// The least that still tells every deadline from the others. No grace: what holds without it holds with it.
pub const SHORT: Times = Times {
    lease: 2,
    grant: 1,
    grace: 0,
    deadline: 1,
};

/// A grant that may be a tick old and is still believed.
pub const LONG: Times = Times {
    lease: 3,
    grant: 2,
    grace: 0,
    deadline: 1,
};

/// How often something bad may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A client gives up a connection: answers and pushes under way are gone, commands under way are
    /// applied later, in order, or a suffix of them is not.
    pub cuts: u8,
    /// The server closes a connection: commands under way are gone, answers under way still arrive.
    pub closes: u8,
    /// A client dies. The server may notice late or never.
    pub crashes: u8,
    /// The server loses its data; connections stay.
    pub flushes: u8,
    /// The server refuses writes for a while.
    pub refusals: u8,
    /// A call's `wait` ends, or its future is dropped.
    pub give_ups: u8,
    /// Ticks that pass although a message could be delivered or a client had something to do: a slow
    /// network or a paused client. [`Faults::ANY`]: no bound, every message and every client may be
    /// arbitrarily slow at any time.
    pub late_ticks: u8,
}

impl Faults {
    /// No bound on late ticks.
    pub const ANY: u8 = u8::MAX;
}

/// One exploration.
#[derive(Clone, Debug)]
pub struct Config {
    /// What it is called in the table.
    pub name: &'static str,
    /// How many calls each client makes, one after another. Its length is the number of clients, at most
    /// three.
    pub calls: &'static [u8],
    /// The rules in force.
    pub rules: Rules,
    /// Durations.
    pub times: Times,
    /// Faults that may happen.
    pub faults: Faults,
    /// Whether holds are renewed, on a connection of their own. Without it a body that takes longer than
    /// its lease loses it.
    pub renewals: bool,
    /// Whether a client may also confirm a fresh grant first (its pair of times was too old).
    pub doubt: bool,
    /// The most commands under way on one connection.
    pub pipe: usize,
    /// From any state at all, everybody who waits and lives is served within this many ticks if nothing
    /// bad happens any more and bodies end.
    pub served_within: u8,
    /// Explore only states that are at most so many steps away.
    pub depth: Option<usize>,
}
