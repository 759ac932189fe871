//! The resource that the locks protect: a separate process without faults.
//!
//! It has two registers for each key. One checks the fencing token at every access, the other
//! accepts every access. Bodies with permits, which have no token, report when they enter and
//! leave. Workers send one JSON line per request.

mod client;
mod fence;
mod server;

use serde::{Deserialize, Serialize};

use crate::history::OpId;
pub(crate) use client::Pool;
pub(crate) use server::{Args, run};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) key: String,
    pub(crate) by: OpId,
    pub(crate) token: u64,
    /// Set if other holders may have the same token.
    pub(crate) shared: bool,
    pub(crate) access: Access,
}

/// The part of a request that depends on its kind. `fenced` selects the register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Access {
    Read {
        fenced: bool,
    },
    Write {
        fenced: bool,
        value: i64,
    },
    /// Writes the fenced registers of the request's key and of `to`, both or none: they were read,
    /// and an amount moves from one to the other.
    Move {
        amount: i64,
        values: [i64; 2],
        to: String,
        to_token: u64,
    },
    /// A body with this many permits begins.
    Enter {
        weight: u32,
    },
    Leave,
}

impl Access {
    /// Returns false if the access does not concern the fenced register.
    pub(crate) fn is_fenced(&self) -> bool {
        match self {
            Access::Read { fenced } | Access::Write { fenced, .. } => *fenced,
            Access::Move { .. } => true,
            Access::Enter { .. } | Access::Leave => false,
        }
    }
}

/// The value of the register, or `None` if a token is stale.
pub(crate) type Answer = Option<i64>;
