//! A model of the quorum's protocol. Independent nodes have one vote each and a queue by tickets.
//! Clients collect a quorum of votes and confirm them with the largest token. They yield to lower
//! tickets while they have too few votes.
//!
//! Nodes are interchangeable, so states that differ only in the order of nodes are one.
//!
//! **A node** applies one command at a time (`node.rs`). A token is just above what the node knows,
//! and below all other tokens: clocks do not help, except where a rule says so. **A client** reacts
//! at once to the messages that it reads (`client.rs`). **Time** is in ticks, as in the other
//! model; a body has no limit. **A lost connection** delivers its commands in flight one by one, at
//! any later time, or never. Its acquires and repairs are refused after a tick.
//!
//! Not modeled: clocks that run differently, more than one lost connection of a client to one node
//! at a time, pushes that are lost alone.

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
