//! A model of the quorum's protocol: independent nodes, each with one vote and a queue by tickets, and clients that collect a
//! quorum of votes, have them confirmed with the largest token, and yield to lower tickets while they have too few.
//!
//! It is explored as the other one is: every order of steps, and in each state the claims ([`Claim`]); then again without one
//! rule ([`removals`]). Which node is which does not matter, so states that differ by that alone are one.
//!
//! **A node** applies one command at a time (`node.rs`). A token is just above what the node knows, and below all others that are:
//! clocks do not help, but where a rule says so. **A client** does at once what follows from what it hears (`client.rs`). **Time** is in
//! ticks, as in the other model; a body takes as long as it likes. **A lost connection** delivers what is under way, one by one,
//! at any time after, or never; an ask and a repair are refused there after a tick.
//!
//! Not modelled: clocks that run differently, more than one lost connection of a client to one node at a time, pushes that are lost alone.

mod client;
mod config;
mod explore;
mod node;
mod scenarios;
mod state;
mod steps;
mod wire;

pub use config::{Config, Faults, Rules};
pub use explore::{Claim, Report};
pub use node::{Lock, Node, Said};
pub use scenarios::{Removal, Scenario, clean, deep, five, removals};
pub use wire::{Command, Message, Owner, Owners, Token};
