//! The resource that the locks protect: a separate process without faults.
//!
//! It has two registers for each key. One checks the fencing token at every access, the other
//! accepts every access. Workers send one JSON line per request.

mod client;
mod fence;
mod server;

use serde::{Deserialize, Serialize};

use crate::history::OpId;
pub(crate) use client::Pool;
pub(crate) use server::{Args, run};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) key: String,
    pub(crate) by: OpId,
    pub(crate) token: u64,
    /// Set if other holders may have the same token.
    pub(crate) shared: bool,
    /// Selects the fenced register instead of the unfenced one.
    pub(crate) fenced: bool,
    /// The value to write, or `None` to read.
    pub(crate) write: Option<u64>,
}

/// The value of the register, or `None` if the token is stale.
pub(crate) type Answer = Option<u64>;
