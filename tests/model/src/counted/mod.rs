//! A model of the counted lock: readers and writers, and permits.
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
pub use scenarios::{clean, removals};
