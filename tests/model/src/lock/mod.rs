//! A model of the hand-off protocol of one server.
//!
//! # What is modeled
//!
//! **The server** has one lock with its TTL, its queue with marks, and a subscriber count for each
//! client. `server.rs` has the scripts `acquire`, `confirm`, `release`, `check_queue` and `renew`
//! and their fragment `next`, branch by branch. Every script is atomic. A refusing server stops a
//! script at its first write (MISCONF, NOREPLICAS, READONLY).
//!
//! **A client** makes one call after another. A call acquires and waits. It starts the body on a
//! pushed grant, or confirms the grant first. While the body runs, the client confirms and renews;
//! then it releases. Work that the real client does in threads is done in separate steps, in any
//! order. The connection's reader puts a grant into the call's slot, where the first grant stays
//! until the call takes it out. A queue check reports that the lock is yours, or that the id is
//! queued or missing. Releases are repeated until answered, while the next call already acquires.
//! After a failed confirmation, the call cancels and acquires with a new id. A command without a
//! timely reply is repeated with the same id while the first is still in flight. Client and server
//! use the same clock, see below. A body ends at any time, also after its lease.
//!
//! **The network** is TCP. A connection keeps messages and pushes in order and delays them without
//! bound; none is lost or duplicated alone. Only the rest of a connection can be lost. When a
//! client gives up a connection ([`Faults::cuts`]), all replies and pushes in flight are lost. The
//! server applies the commands in flight later, in order, one by one. Once it notices the loss (at
//! any time, or never), the remaining commands are lost too. When the server closes a connection
//! ([`Faults::closes`]), the commands are lost, and messages that it has sent still arrive.
//! Duplicates are those of reality: the same acquire, release or queue check on the old connection
//! and again on the new one. A new connection subscribes and notifies the waiting calls together.
//! A release may overtake another command, or be overtaken ([`Faults::overtakes`]), because a
//! client has several connections. Renewals have a separate connection, which is not ordered with
//! the other and can be lost at any time.
//!
//! **Time** is in ticks. Every lease, grant, apply-by and timer counts down by one with each tick
//! ([`Durations`]). The queue checks of a client are at least a tick apart. Between two ticks,
//! anything may happen in any order. A tick is *late* if it passes while a message could be
//! delivered or a client had something to do. Late ticks model slow networks and paused clients,
//! and their number is part of the budget ([`Faults::late_ticks`]). One pause of three ticks uses
//! three of them. Bodies, idle clients, crashed clients and old connections are never late. The
//! server keeps a key no longer than its holder believes (no grace period), because the protocol
//! must be safe without that reserve.
//!
//! **Liveness**: dead connections linger or are dropped, and their commands are applied or not. The
//! bound is a tick, which is the lease of a grant that was not received. With a crashed client, the
//! bound is the lease of its lock and a grant for its place in the queue.
//!
//! # What is not modeled
//!
//! - Clocks that drift or step; the estimate of the server's time is exact. The choice to confirm a
//!   fresh grant first ([`Durations::doubt`]) models an unknown or outdated estimate.
//! - Several calls of one client at the same time, several keys, `try_acquire`, re-entry,
//!   `min_hold`, `max_hold`, `max_waiters`, shutdown.
//! - Deadlines of queue entries, the TTL of the queue, the cap of removals in one script, a release
//!   that is given up after lease and grace.
//! - The origin of tokens. A new token is above all that are still known anywhere, as tokens from
//!   the server's time are, also after a loss of data.
//! - More than two commands in flight on a connection, a second lost connection of a client while
//!   the server still has the first one, more than four ids of one client known anywhere.
//! - Comparisons across a loss of data. Grants from before it are compared with each other, and
//!   grants from after it with each other (safety statement "while the server keeps its data").
//!
//! A released id may come back until its second release. The claims allow this while the client
//! knows of the id.

mod client;
mod config;
mod network;
mod protocol;
mod reentry;
mod scenarios;
mod server;
mod state;
mod steps;
mod time;
mod timed;
mod tokens;
mod wire;

pub use config::{Config, Durations, Faults, Part, Request, Rules, Scope};
pub use scenarios::{KINDS, clean, deep, every_step, removals};
