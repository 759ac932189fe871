//! A model of the quorum's protocol: independent nodes, each with one vote and a queue by tickets, and clients that
//! collect a quorum of votes, have them confirmed with the largest token, and yield to lower tickets while they have
//! too few.
//!
//! Which node is which does not matter, so states that differ only by that are one.
//!
//! **A node** applies one command at a time (`node.rs`). A token is just above what the node knows, and below all
//! other tokens: clocks do not help, except where a rule says so. **A client** does at once what follows from the
//! messages it reads (`client.rs`). **Time** is in ticks, as in the other model; a body has no limit. **A lost
//! connection** delivers what is in flight, one by one, at any later time, or never; an ask and a repair are refused
//! there after a tick.
//!
//! Not modelled: clocks that run differently, more than one lost connection of a client to one node at a time, pushes
//! that are lost alone.

mod client;
mod config;
mod node;
mod protocol;
mod scenarios;
mod state;
mod steps;
mod wire;

pub use config::{Config, Faults, Rules, Servers};
pub use node::{Lock, Node, Response};
pub use scenarios::{clean, deep, five, long_removals, removals};
pub use steps::KINDS;
pub use wire::{Body, Command, Message, Owner, Owners, Script};
