//! A model of the quorum's protocol. A client holds the lock once a majority of independent nodes
//! has granted it with one token. Otherwise it releases what it has, and tries again.
//!
//! Nodes are interchangeable, so states that differ only in the order of nodes are one.
//!
//! **A node** applies one command at a time (`node.rs`). A token is just above what the node knows,
//! and below all other tokens: clocks do not help, except where a rule says so. **A client** reacts
//! at once to the replies that it reads (`client.rs`). Its floor tokens are arbitrary, as if it
//! knew no clock. A call that tries again is two attempts here, at any time after each other.
//! **Time** is in ticks; a body has no limit. A node that serves nothing is one whose commands are
//! in flight during a late tick. A client that crashed is one whose body does not end. **A lost
//! connection** delivers its commands in flight one by one until the next tick, or never.
//!
//! Not modeled: clocks that run differently, more than one lost connection of a client to one node
//! at a time, `min_hold`, revocations.

mod client;
mod config;
mod node;
mod protocol;
mod scenarios;
mod state;
mod steps;
mod wire;

pub use config::{Config, Faults, Rules, Servers};
pub use node::{Lock, Node};
pub use scenarios::{clean, deep, removals, walks};
pub use steps::KINDS;
pub use wire::{Body, Command, Owner, Reply, Script};
