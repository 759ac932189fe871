//! What went wrong between a client and its store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Outage};
use crate::util::visible::is_hidden;

/// A store operation that did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) outage: Outage,
    pub(crate) code: Code,
    pub(crate) detail: String,
    /// Nothing was handed to a connection, so there is nothing to undo.
    pub(crate) unsent: bool,
    cause: Option<Cause>,
}

/// The meaning of a server's error, where a decision depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Code {
    #[default]
    Other,
    /// The slot is another node's, whose address follows where it can be read.
    Moved(Option<(u16, Box<str>)>),
    /// The slot is being migrated, and the key is at the node with this address.
    Ask(Option<Box<str>>),
    /// The slot is being migrated, or no node serves it.
    TryAgain,
    CrossSlot,
    /// The server is a replica that has lost its primary.
    PrimaryDown,
    /// A key of the lock holds something that distlock did not write.
    Foreign,
    NotAuthenticated,
    WrongPassword,
    NoPermission,
    UnknownCommand,
    /// A password was given, and the server has none.
    NoPassword,
    /// The server is not a node of a cluster.
    NoCluster,
    /// The command is not for the nodes of a cluster.
    OnlyOutsideClusters,
    /// The server has no append-only file.
    NoAppendOnly,
}

/// The error behind a trouble. What it says is in the detail already, so two troubles are the same
/// without it.
#[derive(Clone, Debug)]
struct Cause(Arc<dyn std::error::Error + Send + Sync>);

impl PartialEq for Cause {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Cause {}

impl Trouble {
    pub(crate) fn new(outage: Outage, detail: impl Into<String>) -> Self {
        Trouble {
            outage,
            code: Code::Other,
            detail: one_line(detail.into()),
            unsent: false,
            cause: None,
        }
    }

    pub(crate) fn with_code(self, code: Code) -> Self {
        Trouble { code, ..self }
    }

    /// The same trouble, with the error that it came of.
    pub(crate) fn because(mut self, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Cause(Arc::new(error)));
        self
    }

    /// Whether the store said nothing: it was not asked, or did not answer.
    pub(crate) fn is_no_answer(&self) -> bool {
        self.unsent || matches!(self.outage, Outage::Unreachable | Outage::TimedOut)
    }

    /// The same trouble, for a command that was never sent.
    pub(crate) fn unsent(mut self) -> Self {
        self.unsent = true;
        self
    }

    /// The same trouble, after something else was sent that may have to be undone.
    pub(crate) fn sent(mut self) -> Self {
        self.unsent = false;
        self
    }

    /// The same trouble, with the server that has it.
    pub(crate) fn at(mut self, address: &str) -> Self {
        if !self.detail.contains(address) {
            self.detail = one_line(format!("{address}: {}", self.detail));
        }
        self
    }

    /// Returns the same error with a remedy behind its detail.
    pub(crate) fn with_remedy(mut self, remedy: &str) -> Self {
        let detail = self.detail.trim_end_matches(['.', ' ']);
        self.detail = format!("{detail}: {remedy}");
        self
    }

    pub(crate) fn timed_out(within: Duration) -> Self {
        Trouble::new(Outage::TimedOut, format!("no answer within {within:?}"))
    }

    /// Returns the error of a manager that could not connect: what does not pass by itself is a
    /// misconfiguration, whose detail carries the remedy.
    pub(crate) fn into_connect_error(self, waited: Duration) -> Error {
        if self.outage.is_transient() {
            return self.into_error(None, waited);
        }
        Error::config(self.detail)
    }

    pub(crate) fn into_error(self, key: Option<String>, waited: Duration) -> Error {
        Error::Unavailable {
            key,
            waited,
            outage: self.outage,
            detail: self.detail,
            source: self.cause.map(|cause| cause.0),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.outage, self.detail)
    }
}

/// Returns a server's text, fit for an error and a log: one line of limited length without control
/// characters.
pub(crate) fn one_line(text: String) -> String {
    const MAX_CHARS: usize = 500;
    if text.len() <= MAX_CHARS && !text.contains(is_hidden) {
        return text;
    }
    let clean = |c: char| if is_hidden(c) { ' ' } else { c };
    text.chars().take(MAX_CHARS).map(clean).collect()
}
