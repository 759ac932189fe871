//! The errors between a client and its store.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Outage, with_remedy};
use crate::util::visible::is_hidden;

/// The error of a failed store operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreError {
    pub(crate) outage: Outage,
    pub(crate) detail: String,
    /// Set if no connection received the command, so there is nothing to cancel.
    pub(crate) unsent: bool,
    /// Its text is in the detail, too.
    cause: NotCompared<Option<Arc<dyn std::error::Error + Send + Sync>>>,
    /// What the store itself has to know of its error. Other layers only pass it on.
    code: NotCompared<Option<Arc<dyn Any + Send + Sync>>>,
}

/// A part of an error that comparisons ignore.
#[derive(Clone, Debug)]
struct NotCompared<T>(T);

impl<T> PartialEq for NotCompared<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for NotCompared<T> {}

impl StoreError {
    pub(crate) fn new(outage: Outage, detail: impl Into<String>) -> Self {
        StoreError {
            outage,
            detail: one_line(detail.into()),
            unsent: false,
            cause: NotCompared(None),
            code: NotCompared(None),
        }
    }

    /// Adds what the store has to know of the error.
    pub(crate) fn with_code(mut self, code: impl Any + Send + Sync) -> Self {
        self.code.0 = Some(Arc::new(code));
        self
    }

    /// Returns what the store has added.
    pub(crate) fn code_of_store<T: Any>(&self) -> Option<&T> {
        self.code.0.as_ref()?.downcast_ref()
    }

    /// Returns the same error with `error` as its cause.
    pub(crate) fn with_source(
        mut self,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        self.cause.0 = Some(Arc::new(error));
        self
    }

    /// Returns true if the command was not sent, or the store did not reply.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.unsent || matches!(self.outage, Outage::Unreachable | Outage::TimedOut)
    }

    /// Marks the command as never sent.
    pub(crate) fn mark_unsent(mut self) -> Self {
        self.unsent = true;
        self
    }

    /// Marks the command as sent, because another command was sent that may have to be cancelled.
    pub(crate) fn mark_sent(mut self) -> Self {
        self.unsent = false;
        self
    }

    /// Returns the same error with the server's address before its detail, unless it is there.
    pub(crate) fn at(mut self, address: &str) -> Self {
        if !self.detail.contains(address) {
            self.detail = one_line(format!("{address}: {}", self.detail));
        }
        self
    }

    /// Returns the same error with a remedy after its detail.
    pub(crate) fn with_remedy(mut self, remedy: &str) -> Self {
        let detail = self.detail.trim_end_matches(['.', ' ']);
        self.detail = format!("{detail}; {remedy}");
        self
    }

    /// Returns the text of the error with its remedy.
    pub(crate) fn text_with_remedy(&self) -> String {
        format!(
            "{}: {}",
            self.outage,
            with_remedy(self.outage, &self.detail)
        )
    }

    pub(crate) fn timed_out(timeout: Duration) -> Self {
        StoreError::new(Outage::TimedOut, format!("no answer within {timeout:?}"))
    }

    pub(crate) fn into_error(self, key: Option<String>, waited: Duration) -> Error {
        Error::Unavailable {
            key,
            waited,
            outage: self.outage,
            detail: self.detail,
            source: self.cause.0,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.outage, self.detail)
    }
}

/// Returns a server's text as one line of limited length without control characters, for errors and
/// logs.
pub(crate) fn one_line(text: String) -> String {
    const MAX_CHARS: usize = 500;
    if text.len() <= MAX_CHARS && !text.contains(is_hidden) {
        return text;
    }
    let clean = |c: char| if is_hidden(c) { ' ' } else { c };
    text.chars().take(MAX_CHARS).map(clean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_a_server_is_one_short_line_with_its_address() {
        for (text, expected) in [("a text", "a text"), ("a\n\u{202e}b", "a  b")] {
            assert_eq!(one_line(text.into()), expected);
        }
        let long = "x".repeat(501);
        assert_eq!(one_line(long.clone()), long[1..]);
        assert_eq!(one_line(long[1..].to_owned()), long[1..]);
        let error = StoreError::new(Outage::NotReady, "loading").at("host:1");
        assert_eq!(error.detail, "host:1: loading");
        assert_eq!(error.clone().at("host:1"), error);
        assert!(error.text_with_remedy().contains("host:1: loading"));
    }
}
