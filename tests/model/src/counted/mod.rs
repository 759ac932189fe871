//! A model of the counted lock: readers and writers, and permits.
//!
//! # What is modeled
//!
//! **The server** has one counted lock. Every holder has a record with a flag, a token, an expiry
//! and its weight on a capacity. A FIFO queue has the waiters, and its head is granted for as long
//! as it fits. The server also has the sum of the weights, the token of the present phase of
//! readers, the fence, and a note for each client that let a grant expire. `server.rs` has the
//! scripts `acquire`, `confirm` and `renew` (`extend`), `release`, `check_queue`, `downgrade` and
//! `revoke`, branch by branch. A script is atomic, except that a release may stop after its first
//! write ([`Faults::stops`]).
//!
//! **A call** is one acquisition as a reader, as a writer, or of permits. It acquires and waits. It
//! starts its body on a pushed grant or confirms the grant first; then it confirms, renews,
//! downgrades and releases. The calls of a client are concurrent. They share its connection, its
//! queue checks and its crash.
//!
//! **The network** applies a command and delivers its reply in one step. A command without a timely
//! reply is sent again, and the first one is applied at any later time or never. Pushes and
//! renewals are not ordered with commands. A push can be lost, and a grant is accepted only while
//! the server has its record.
//!
//! **A resource** checks tokens: it accepts a token that is at least as large as all that it has
//! seen. A write of an ended hold may still be in flight to it.
//!
//! **Time** is what safe deadlines guarantee: the record of a live holder expires only after the
//! client no longer considers its hold valid. `timed.rs` models the clock apart from the protocol,
//! and with it the decision when the server recounts its holders. `reentry.rs` models the requests
//! of a call tree for a lock that the tree holds.
//!
//! **Liveness**: without further faults every live call ends, in every order of the prompt steps.
//!
//! # What is not modeled
//!
//! - Everything that [`lock`](crate::lock) shows for the mutex and that works in the same way:
//!   connections, marks, the loss of data, the age of grants in ticks.
//! - The types of the keys, on which a script of another kind of lock fails. Here, kinds are
//!   compared.
//! - `min_hold`, `max_waiters`, deadlines of queue entries, the limit of work of one script, and
//!   servers that refuse writes.
//! - A sweep that stops half-way, the key's own TTL, and the origin of tokens in the clock.
//! - A call that acquires again after it lost its hold, and more than one late command of a call.

mod client;
mod config;
mod protocol;
mod reentry;
mod scenarios;
mod server;
mod state;
mod steps;
mod timed;

pub use config::{Config, Faults, Part, Request, Rules};
pub use scenarios::{clean, deep, removals};
