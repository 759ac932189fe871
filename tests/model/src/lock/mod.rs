//! A model of the lock of one server: a mutex, permits, and readers and writers.
//!
//! A lock has a capacity, and every hold has a weight. A mutex has a capacity of one. A writer
//! weighs as much as the capacity.
//!
//! # What is modeled
//!
//! **The server** has a record of each holder with a flag, a weight, a token and an expiry. It also
//! has the sum of the weights, the capacity of the last grant, the token of the present phase of
//! readers, and the fence. A FIFO queue has the waiters, and its head is granted for as long as it
//! fits. A grant removes the entry and notes when the grant ends. A process that let its last grant
//! expire is passed until it is heard of again. `server.rs` has the scripts `acquire`, `confirm`,
//! `renew`, `release`, `check_queue`, `downgrade` and `revoke`, branch by branch. A script is
//! atomic, except that it may stop after its first write ([`Faults::stops`]). A refusing server
//! stops a script at its first write (MISCONF, NOREPLICAS, READONLY).
//!
//! **A client** makes one call after another. A call acquires and waits. It starts the body on a
//! pushed grant, or confirms the grant first. While the body runs, the client confirms, renews and
//! downgrades; then it releases. Work that the real client does in threads is done in separate
//! steps, in any order. The connection's reader puts a grant into the call's slot, where the first
//! grant stays until the call takes it out. A queue check reports that the lock is yours, or that
//! the id is queued or missing. Releases are repeated until answered, while the next call already
//! acquires. After a failed confirmation, the call cancels and acquires with a new id. A command
//! without a timely reply is repeated with the same id while the first is still in flight. Client
//! and server use the same clock, see below. A body ends at any time, also after its lease.
//!
//! **A process** has one or more clients ([`Scope`]), whose calls are concurrent. They share a
//! crash, and the server's note. The process is connected while one of its clients is.
//!
//! **The detailed network** is TCP. A connection keeps messages and pushes in order and delays them
//! without bound; none is lost or duplicated alone. Only the rest of a connection can be lost. When
//! a client gives up a connection ([`Faults::cuts`]), all replies and pushes in flight are lost. The
//! server applies the commands in flight later, in order, one by one. Once it notices the loss (at
//! any time, or never), the remaining commands are lost too. When the server closes a connection
//! ([`Faults::closes`]), the commands are lost, and messages that it has sent still arrive.
//! Duplicates are those of reality: the same acquire, release or queue check on the old connection
//! and again on the new one. A new connection subscribes and notifies the waiting call. A release
//! may overtake another command, or be overtaken ([`Faults::overtakes`]), because a client has
//! several connections. Renewals have a separate connection, which is not ordered with the other
//! and can be lost at any time.
//!
//! **Time** in the detailed network is in ticks. Every lease, grant, apply-by and timer counts down
//! by one with each tick ([`Durations`]). The queue checks of a client are at least a tick apart.
//! Between two ticks, anything may happen in any order. A tick is *late* if it passes while a
//! message could be delivered or a client had something to do. Late ticks model slow networks and
//! paused clients, and their number is part of the budget ([`Faults::late_ticks`]). One pause of
//! three ticks uses three of them. Bodies, idle clients, crashed clients and old connections are
//! never late. The server keeps a record no longer than its holder believes (no grace period),
//! because the protocol must be safe without that reserve.
//!
//! **The coarse network** has the same server and the same clients, with fewer steps. A command and
//! its reply are one step. A command without a timely reply is repeated, and the first one is
//! applied at any later time or never. Pushes and renewals are not ordered with commands. A push can
//! be lost. There are no ticks. Time is what safe deadlines guarantee: the record of a live holder
//! expires only after the client no longer considers its hold valid. A call that could not confirm
//! its grant ends.
//!
//! **A resource** of readers and writers checks tokens: it accepts a token that is at least as large
//! as all that it has seen. A write of an ended hold may still be in flight to it.
//!
//! **Liveness**: dead connections linger or are dropped, and their commands are applied or not. The
//! bound is a tick, which is the lease of a grant that was not received. With a crashed process, the
//! bound is the lease of its lock and a grant for one of its places in the queue. A late command of
//! the crashed process is taken for a sign of life, so each one adds at most a grant. In the coarse
//! network every live call ends, in every order of the prompt steps.
//!
//! # What is not modeled
//!
//! - Clocks that drift or step; the estimate of the server's time is exact. The choice to confirm a
//!   fresh grant first ([`Durations::doubt`]) models an unknown or outdated estimate.
//! - When a script recounts the holders of a counted lock. `equivalence::rules` removes each of these
//!   rules from the scripts.
//! - Nested calls for a lock that the call tree holds.
//! - Several keys, `try_acquire`, `min_hold`, `max_hold`, `max_waiters`, shutdown.
//! - The types of the keys, on which a script of another kind of lock fails. Here, kinds are
//!   compared.
//! - Deadlines of queue entries, the TTL of the queue, the limit of work of one script, a sweep that
//!   stops half-way, a release that is given up after lease and grace.
//! - A key that outlives its last record. Here, a lock without live holders has no key.
//! - The origin of tokens. A new token is above all that are still known anywhere, as tokens from
//!   the server's time are, also after a loss of data.
//! - More than two commands in flight on a connection, a second lost connection of a client while
//!   the server still has the first one, more than four ids of one client known anywhere. In the
//!   coarse network, more than one late command of a client.
//! - A writer that makes several calls, a call that acquires again after it lost its hold.
//! - The deletion of the hold of a live process by an operator.
//! - Comparisons across a loss of data. Grants from before it are compared with each other, and
//!   grants from after it with each other (safety statement "while the server keeps its data").
//!
//! A released id may come back until its second release. The claims allow this while the client
//! knows of the id.

mod client;
mod config;
mod network;
mod protocol;
mod scenarios;
mod server;
mod state;
mod steps;
mod time;
mod tokens;
mod wire;

pub use config::{Config, Durations, Faults, Request, Rules, Scope};
pub use scenarios::{KINDS, clean, deep, every_step, removals};
