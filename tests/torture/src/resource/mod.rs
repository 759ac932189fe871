//! The resource that the locks protect: a process of its own without faults.
//!
//! For each key it has a register twice: one copy checks fencing tokens at every access, the other
//! one takes everything. Workers speak to it one JSON line a request.

mod client;
mod fence;
mod server;

use serde::{Deserialize, Serialize};

use crate::history::OpId;
pub(crate) use client::Pool;
pub(crate) use server::{Args, run};

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) key: String,
    pub(crate) by: OpId,
    pub(crate) token: u64,
    /// Which of the two copies.
    pub(crate) fenced: bool,
    /// `None` reads.
    pub(crate) write: Option<u64>,
}

/// The answer: the value of the register, or nothing if the token is not the newest any more.
pub(crate) type Answer = Option<u64>;
