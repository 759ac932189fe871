//! A model of the hand-off protocol of one server.
//!
//! # What is modelled
//!
//! **The server** has one lock with its TTL, its queue with marks, and a subscriber count for each client. The
//! scripts `ask`, `confirm`, `release`, `look` and `renew` and their fragment `next` are in `server.rs`, branch by
//! branch; each is atomic. A refusing server stops a script at its first write (MISCONF, NOREPLICAS,
//! READONLY).
//!
//! **A client** makes its calls one after another: it asks, waits, believes a pushed grant or has it confirmed
//! first, runs a body, confirms and renews meanwhile, and releases. What the real client does in threads is done
//! in separate steps, in any order. The connection's reader puts a grant into the call's slot, where the first
//! one stays; the call takes it out some time later. A look reports yours, queued or missing. Releases are repeated
//! until answered while the next call already asks. A confirmation that fails makes the call cancel and ask with a
//! new id. A command that was not answered in time is repeated with the same id while the first is still in flight.
//! Client and server compute with the same clock, see below. A body ends at any time, also after its lease.
//!
//! **The network** is TCP. In a connection messages and pushes stay in order and are delayed without bound; none is
//! lost or doubled alone. What is lost is the rest of a connection. When a client gives one up ([`Faults::cuts`])
//! all answers and pushes in flight are lost, and the commands in flight are applied later, in order, one by one,
//! until the server notices (at any time, or never) and the rest is lost too. When the server closes one
//! ([`Faults::closes`]) the commands are lost and what it has sent still arrives. Duplicates are those of
//! reality: the same ask, release or look again, on the old connection and on the new one. The new connection's
//! kill of the old one, its SUBSCRIBE and the notification of the waiting calls are one step. Renewals have a
//! connection of their own, in no order with the other, and can be lost at any time.
//!
//! **Time** is in ticks. Every lease, grant, apply-by and timer counts down by one with each ([`Durations`]); the
//! looks of a queued client are at least a tick apart. Between two ticks anything may happen in any order. A tick is
//! *late* if it passes while a message could be delivered or a client had something to do: this is how slow
//! networks and paused clients appear, and their number is part of the budget ([`Faults::late_ticks`]): one pause of
//! three ticks is three of them. Bodies, idle clients, crashed clients and old connections are never late. The server
//! keeps a key no longer than its holder believes (no grace period): the protocol must be safe without that reserve.
//!
//! **Liveness**: dead connections linger or are dropped, their commands are applied or not. The bound is a tick,
//! which is the lease of a grant that was not received, and with a crashed client the lease of its lock and a grant
//! for its place in the queue.
//!
//! # What is not modelled
//!
//! - Clocks that drift or step; the estimate of the server's time is exact. That it may be unknown or too old is
//!   the choice to confirm a fresh grant first ([`Durations::doubt`]).
//! - Several calls of one client at the same time, several keys, `try_acquire`, re-entry, `min_hold`, `max_hold`,
//!   `max_waiters`, shutdown.
//! - Deadlines of queue entries, the TTL of the queue, the cap of removals in one script, a release that is given up
//!   after lease and grace.
//! - How tokens are made: a new one is above all that are still known anywhere, as tokens from the server's time
//!   are, also after a loss of data.
//! - More than two commands in flight on a connection, a second lost connection of a client while the server still
//!   has the first one, more than four ids of one client known anywhere.
//! - Loss of data and grants from before it: they are compared with each other, and those from after it
//!   with each other, but not across (safety statement "while the server keeps its data").
//!
//! Without `CLIENT KILL` an id that was undone may come back until its second undo, which the claims allow as long
//! as the client knows of it.

mod action;
mod client;
mod config;
mod effects;
mod protocol;
mod scenarios;
mod server;
mod state;
mod steps;
mod time;
mod tokens;
mod wire;

pub use action::KINDS;
pub use config::{Config, Durations, Faults, Rules};
pub use scenarios::{clean, deep, every_step, removals};
