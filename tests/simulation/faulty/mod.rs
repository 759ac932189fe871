//! A network with faults chosen by a seed, and a memory server behind it that speaks Redis.
//!
//! The client's side is the real Redis store over the transport of this module. A connection
//! guarantees what a Redis connection does, and no more. It applies requests of one owner in the
//! order of sending. After its loss, sent requests may be applied until the server notices the
//! loss.
//!
//! `network` has the scheduled events, `site` a client's place on the network, and `connection` one
//! connection with both ends. `server` is the memory store with a witness. `wire` encodes commands
//! and replies, `op` is their meaning. `host` is the client's process, `fault` has the faults.

mod connection;
mod fault;
mod host;
mod network;
mod op;
mod server;
mod site;
mod wire;

pub(crate) use fault::{ALL, Conditions, Fault};
pub(crate) use host::Host;
pub(crate) use network::{Millis, Network};
pub(crate) use op::{Answer, Op};
pub(crate) use server::{Applied, FaultyServer, GrantReceiver};
pub(crate) use site::{Role, Site, ToServer};
pub(crate) use wire::CONFIG;
