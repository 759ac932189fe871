//! The diagnostics of the doctor.

use std::fmt;

use serde::Serialize;

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Diagnostic {
    /// The address of the server, or of the whole store if the check is not about one server.
    pub(super) server: String,
    /// The check in one word: `version`, `eviction`, `persistence`, `clock` and so on.
    pub(super) check: &'static str,
    /// The effect on locks.
    pub(super) severity: Severity,
    /// The state of the server.
    pub(super) message: String,
    /// What to do or to know; empty if all is well.
    pub(super) help: String,
}

/// The effect of a diagnostic on locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// As it should be.
    Ok,
    /// It works, but there is something to know about it, or it could not be checked.
    Warning,
    /// Locks fail, or may be held twice.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Ok => "ok",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}
