//! A model of the hand-off protocol, explored with [stateright](https://docs.rs/stateright).
//!
//! Each client of distlock is a small state machine, Redis is another, and between them are connections.
//! The checker takes every step that could happen next, in every order, and looks at every state: does more
//! than one body believe to hold the lock, do tokens rise, is anybody passed, is anything left behind, and
//! would everybody be served if from now on nothing bad happened? ([`Claim`]) Then the same without one of
//! the protocol's rules: what it finds says what the rule is for. ([`removals`])
//!
//! `cargo run --release -p model` prints both tables and the shortest counter-example for each rule;
//! `--deep` adds explorations of minutes and gigabytes.
//!
//! # What is modelled
//!
//! **The server** has one lock with its TTL, its queue with marks, and a subscriber count for each client. The scripts
//! `ask`, `confirm`, `release`, `look` and `renew` and their fragment `next` are in `server.rs` branch by
//! branch; each is atomic. A refusing server stops a script at its first write (MISCONF, NOREPLICAS,
//! READONLY).
//!
//! **A client** makes its calls one after another: ask, wait, believe a pushed grant or have it confirmed
//! first, run a body, confirm and renew meanwhile, release. What the real one does in threads is done
//! in steps of their own, in any order: the connection's reader puts a grant into the call's slot, where the
//! first one stays; the call takes it out some time later; a look says yours, queued or missing; releases are repeated
//! until answered while the next call already asks; a confirmation that fails makes the call cancel and ask with a
//! new id; a command that was not answered in time is repeated with the same id while the first is still under way.
//! Client and server compute with the same clock, see below. A body ends whenever it likes, also after its
//! lease.
//!
//! **The network** is TCP. In a connection messages and pushes stay in order and are delayed as long as one
//! likes; none is lost or doubled alone. What is lost is the rest of a connection: when a client gives one up
//! ([`Faults::cuts`]) all answers and pushes under way are gone, and the commands under way are applied later,
//! in order, one by one, until the server notices (at any time, or never) and the rest is gone too. When the server closes one
//! ([`Faults::closes`]) the commands are gone and what it has sent still arrives. Duplicates are what they are
//! in reality: the same ask, release or look again, on the old connection and on the new one. The new connection's
//! kill of the old one, its SUBSCRIBE and the telling of the waiting calls are one step. Renewals have a
//! connection of their own, in no order with the other, and can be lost at any time.
//!
//! **Time** is in ticks. Every lease, grant, apply-by and timer counts down by one with each ([`Times`]); the looks of
//! a queued client are at least a tick apart. Between two ticks anything may happen in any order. A tick is *late* if it passes while a message
//! could be delivered or a client had something to do: that is how slow networks and paused clients look, and
//! their number is part of the budget ([`Faults::late_ticks`]): one pause of three ticks is three of them. Bodies, idle
//! clients, dead clients and old connections are never late. The server keeps a key not a moment longer than its holder believes
//! (grace zero): the protocol must be safe without that reserve.
//!
//! **Liveness** is asked of each state that is explored, not of a sample: from there all continuations are
//! followed in which everybody is prompt (no fault, no new call, bodies end, a tick passes when there is
//! nothing left to do; dead connections linger or are dropped, their commands are applied or not), and
//! the ticks are counted until all who live are served and have taken back what they had to. One that goes round
//! in a circle, or comes to a standstill, is a counter-example, as is one that takes longer than the
//! stated bound: a tick, which is the lease of a grant that was not heard of, and with a lost client the lease
//! of its lock and a grant for its place in the queue ([`Config::served_within`]).
//!
//! # What is not modelled
//!
//! - Clocks that drift or step; the estimate of the server's time is exact. That it may be unknown or too old is
//!   the choice to prove a fresh grant first ([`Config::doubt`]).
//! - Several calls of one client at the same time, several keys, `try_acquire`, re-entry, `min_hold`, `max_hold`,
//!   `max_waiters`, shutdown.
//! - Deadlines of queue entries, the TTL of the queue, the cap of removals in one script, a release that is given up after
//!   lease and grace.
//! - How tokens are made: a new one is above all that anybody still knows, as tokens from the server's time are, also after
//!   a loss of data.
//! - More than [`Config::pipe`] commands under way on a connection, a second lost connection of a client while the
//!   server still has the first one, more than four ids of one client known anywhere.
//! - Loss of data and grants from before it: they are compared with each other, and those from after it
//!   with each other, but not across (nobody can: safety statement "while the server keeps its data").
//!
//! Without `CLIENT KILL` ([`KILL_DENIED`]) an id that was undone may come back until its second undo, which the claims
//! allow as long as the client knows of it.

mod action;
mod calm;
mod client;
mod config;
mod effects;
mod explore;
mod hashing;
mod list;
pub mod quorum;
mod scenarios;
mod server;
mod show;
mod state;
mod steps;
mod time;
mod tokens;
mod wire;

pub use action::Action;
pub use config::{Config, Faults, KILL_DENIED, LONG, Rules, SHORT, Times};
pub use explore::{Claim, CounterExample, Report, explore, kinds, refute};
pub use list::List;
pub use scenarios::{Removal, clean, deep, removals};
pub use state::{
    CLIENTS, Call, Client, Entry, Id, Link, Lock, Phase, Renewal, Server, Signal, State, Undo,
    Wrongs,
};
pub use wire::{Command, Message, Proof, Sight, Token};
