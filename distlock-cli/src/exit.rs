//! The exit codes of the program, and its error messages.

use std::io::Write as _;
use std::process::ExitCode;

use distlock::Error;
use serde_json::{Value, json};

use crate::output::table::printable;

/// Another client has the lock.
pub(crate) const BUSY: u8 = 116;
/// The store could not be used.
pub(crate) const UNAVAILABLE: u8 = 117;
/// The lock was lost, and the command was stopped, or not started.
pub(crate) const LOST: u8 = 118;
/// The URL, a credential, a permission or an option cannot work.
pub(crate) const MISCONFIGURED: u8 = 119;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 2;
/// `doctor` has found an error.
pub(crate) const FOUND_ERROR: u8 = 1;
/// The operating system has refused an operation.
pub(crate) const FAILED: u8 = 1;
/// The command cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command does not exist.
pub(crate) const NOT_FOUND: u8 = 127;

/// The exit codes, for `--help`.
pub(crate) const TABLE: &str = "\
Exit codes:
  0    success; run: also if the command has already succeeded (--once-per)
  1    doctor: a check has found an error; others: the operating system refuses
  2    invalid command line
  116  busy: another process has the lock, or its queue is full
  117  unavailable: the store could not be used
  118  lost: the lock was lost, and the command was stopped, or not started
  119  misconfigured: a URL, a credential, a permission or a setting cannot work
  126  run: the command cannot be executed
  127  run: the command does not exist
  128+n  ended by signal n
`run` ends with the code of its command. No shell, sysexits.h (64 to 78), timeout, xargs, env \
or Python uses 116 to 119.";

/// The reason for an exit without success.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// The key of the lock, if the failure is about one.
    key: Option<String>,
    /// The failure and the remedy, in one line.
    message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        // Messages of servers may contain line breaks.
        let message: String = message.into();
        let lines: Vec<_> = message.lines().map(str::trim).collect();
        Failure {
            code,
            key: None,
            message: printable(&lines.join(" ")),
        }
    }

    /// Returns the failure of a process that could not be started.
    pub(crate) fn not_executable(what: &str, error: &std::io::Error) -> Self {
        Failure::new(NOT_EXECUTABLE, format!("{what}: {error}"))
    }

    pub(crate) fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Returns the failure as one word for programs.
    pub(crate) fn kind(&self) -> &'static str {
        match self.code {
            BUSY => "busy",
            UNAVAILABLE => "unavailable",
            LOST => "lost",
            MISCONFIGURED => "misconfigured",
            USAGE => "usage",
            NOT_EXECUTABLE => "not_executable",
            NOT_FOUND => "not_found",
            _ => "failed",
        }
    }

    /// Writes the failure to stderr. A failed write is ignored, because it cannot be reported.
    pub(crate) fn print(&self, as_json: bool) {
        let line = if as_json {
            self.as_json().to_string()
        } else {
            format!("distlock: {}", self.message)
        };
        let _ = writeln!(std::io::stderr(), "{line}");
    }

    fn as_json(&self) -> Value {
        json!({
            "error": {
                "kind": self.kind(),
                "code": self.code,
                "key": self.key,
                "message": self.message,
            }
        })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Busy { .. } | Error::QueueFull { .. } => BUSY,
            // It does not pass by itself, such as a permission that is missing.
            Error::Unavailable { outage, .. } if !outage.is_transient() => MISCONFIGURED,
            Error::Unavailable { .. } | Error::ShutDown { .. } => UNAVAILABLE,
            Error::Lost { .. } | Error::MaxHoldExceeded { .. } | Error::Released { .. } => LOST,
            Error::InvalidKey { .. } | Error::InvalidValue { .. } => USAGE,
            _ => MISCONFIGURED,
        };
        Failure {
            key: error.key().map(str::to_owned),
            ..Failure::new(code, error.to_string())
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::new(FAILED, format!("the operating system refuses: {error}"))
    }
}

/// The result of a command.
pub(crate) type CommandResult = Result<ExitCode, Failure>;
