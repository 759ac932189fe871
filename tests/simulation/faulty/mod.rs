//! A network on which anything goes wrong, by a seed, and a memory server behind it that speaks Redis.
//!
//! The client's side is the real store in Redis, over a transport of this place. A connection promises what one to
//! Redis does, and nothing more: requests that concern one owner are applied in the order in which they were sent on
//! it; when it is lost, what was sent on it may be applied until the server knows of that, or its successor kills it.
//!
//! `network` is what is on its way, `site` a client's place on it, `connection` one connection, as both ends see it,
//! `server` the memory store with a witness, `wire` what commands and answers look like, `op` what they mean, `host`
//! the client's process, `fault` what goes wrong.

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
pub(crate) use server::{Applied, FaultyServer, Told};
pub(crate) use site::{Role, Site, ToServer};
pub(crate) use wire::{CONFIG, SCRIPTS};
