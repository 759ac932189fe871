//! What a server says about itself, and how it answers: nothing of it is judged here.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::trouble::Trouble;

/// What part a server plays for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It has all locks.
    Whole,
    /// It has the locks of its slots.
    Primary,
    /// It has a vote.
    Voter,
    /// A sentinel: `info` has the fields of `SENTINEL MASTER`.
    Sentinel,
}

/// What one server says about itself.
#[derive(Debug)]
pub struct Facts {
    /// Its address.
    pub server: String,
    /// Its part in the store.
    pub part: Part,
    /// Why it cannot be asked anything.
    pub outage: Option<String>,
    /// The fields of `INFO`, or why they are not known.
    pub info: Result<BTreeMap<String, String>, String>,
    /// What it is set to, as `CONFIG GET` shows it, or why that is not known. A setting that it
    /// does not have is missing.
    pub settings: Result<BTreeMap<String, String>, String>,
    /// How long round trips took.
    pub rounds: Vec<Duration>,
    /// How many microseconds its clock is ahead of ours, and how much of that may be the way there.
    pub clock: Option<(i64, Duration)>,
}

impl Facts {
    /// A server that cannot be asked.
    pub(crate) fn out_of_reach(server: &str, part: Part, trouble: &Trouble) -> Self {
        Facts {
            server: server.to_owned(),
            part,
            info: Err(trouble.detail.clone()),
            settings: Err(trouble.detail.clone()),
            outage: Some(outage(trouble)),
            rounds: Vec::new(),
            clock: None,
        }
    }
}

/// A failure, as a reader of facts sees it.
pub(crate) fn outage(trouble: &Trouble) -> String {
    format!("{} ({})", trouble.detail, trouble.outage)
}
