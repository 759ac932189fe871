//! What a worker says to the resource, one line a request, and what it answers.

use serde::{Deserialize, Serialize};

use super::fence::Caller;

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) key: String,
    pub(crate) worker: u32,
    pub(crate) generation: u32,
    pub(crate) op: u64,
    pub(crate) token: u64,
    pub(crate) access: Access,
}

impl Request {
    pub(crate) fn caller(&self) -> Caller {
        Caller {
            worker: self.worker,
            generation: self.generation,
            op: self.op,
            token: self.token,
        }
    }
}

/// What is accessed, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Access {
    /// Answered by `Value`.
    Read {
        fenced: bool,
    },
    Write {
        fenced: bool,
        value: u64,
    },
    /// Answered by `Elements`.
    ReadSet,
    /// The set as it was read, with one more at its end.
    WriteSet {
        elements: Vec<u64>,
    },
    /// The next job that was not executed. Answered by `Value`.
    NextJob,
    ExecuteJob {
        job: u64,
    },
}

impl Access {
    /// Whether it only prepares a write.
    pub(crate) fn is_read(&self) -> bool {
        matches!(
            self,
            Access::Read { .. } | Access::ReadSet | Access::NextJob
        )
    }

    /// Whether the fencing rule applies.
    pub(crate) fn is_fenced(&self) -> bool {
        !matches!(
            self,
            Access::Read { fenced: false } | Access::Write { fenced: false, .. }
        )
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Done,
    Value(u64),
    Elements(Vec<u64>),
    /// The token is not the newest any more.
    Stale,
}
