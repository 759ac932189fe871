//! What the doctor finds.

use std::fmt;

use serde::Serialize;

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    /// The server, by its address; the whole store where it is not about one of its servers.
    pub(super) server: String,
    /// What was looked at, in a word: `version`, `eviction`, `persistence`, `clock` and so on.
    pub(super) check: &'static str,
    /// What that means for locks.
    pub(super) verdict: Verdict,
    /// What was found there.
    pub(super) found: String,
    /// What to do, or to know; empty where all is well.
    pub(super) advice: String,
}

/// What a finding means for locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As it should be.
    Good,
    /// It works, and there is something to know about it, or it could not be looked at.
    Mind,
    /// Locks fail, or may be held twice.
    Bad,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Good => "good",
            Verdict::Mind => "mind",
            Verdict::Bad => "bad",
        })
    }
}
