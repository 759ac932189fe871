//! The findings of the doctor.

use std::fmt;

use serde::Serialize;

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    /// The address of the server, or of the whole store if the check is not about one server.
    pub(super) server: String,
    /// The check in one word: `version`, `eviction`, `persistence`, `clock` and so on.
    pub(super) check: &'static str,
    /// The effect on locks.
    pub(super) verdict: Verdict,
    /// The state that was found.
    pub(super) found: String,
    /// What to do or to know. Empty if all is well.
    pub(super) advice: String,
}

/// The effect of a finding on locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As it should be.
    Good,
    /// It works, but there is something to know about it, or it could not be checked.
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
