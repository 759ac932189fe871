//! What a server says about itself, and how it answers: nothing of it is judged here.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::trouble::Trouble;

/// What part a server plays for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
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
pub(crate) struct Facts {
    /// Its address.
    pub(crate) server: String,
    pub(crate) part: Part,
    /// Why it cannot be asked anything.
    pub(crate) outage: Option<Trouble>,
    /// The fields of `INFO`.
    pub(crate) info: Result<BTreeMap<String, String>, Trouble>,
    /// What it is set to, as `CONFIG GET` tells it. A setting that it does not know is not there.
    pub(crate) settings: Result<BTreeMap<String, String>, Trouble>,
    /// How long round trips took.
    pub(crate) rounds: Vec<Duration>,
    /// How many microseconds its clock is ahead of ours, and how much of that may be the way there.
    pub(crate) clock: Option<(i64, Duration)>,
}

impl Facts {
    /// A server that cannot be asked.
    pub(crate) fn out_of_reach(server: &str, part: Part, trouble: Trouble) -> Self {
        Facts {
            server: server.to_owned(),
            part,
            info: Err(trouble.clone()),
            settings: Err(trouble.clone()),
            outage: Some(trouble),
            rounds: Vec::new(),
            clock: None,
        }
    }
}
