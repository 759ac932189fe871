//! A held lock, as those see it who work under it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::fencing::FencingToken;
use crate::manager::hold::Hold;

/// A lock that is held, as its body sees it. Cheap to clone, and it may outlive the hold.
///
/// It does not keep the lock: the guard, or the annotated function, does.
#[derive(Clone)]
pub struct Held {
    hold: Arc<Hold>,
}

impl Held {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Held { hold }
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// The token of this acquisition: pass it to the resource that the lock protects.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.hold.token()
    }

    /// The key of the lock.
    #[must_use]
    pub fn key(&self) -> &str {
        self.hold.key().as_str()
    }

    /// Whether the lock can be proven ours at this moment, by the local clock and without asking the
    /// store. Once false, it stays false.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// For how long the lock is still ours if no further renewal succeeds; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Resolves when the lock is lost, or was released: when its lease cannot be renewed, before the store can give
    /// it to anybody else; when its key vanished, at the next renewal (or the
    /// [`release`](crate::LockGuard::release) tells).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping the future.
    pub async fn lost(&self) -> Error {
        self.hold.lost().await
    }

    /// Checks that the lock is held: for code that runs long without an await.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] or [`Error::HoldLimit`] when it is over.
    pub fn check(&self) -> Result<(), Error> {
        match self.hold.error() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("key", &self.key())
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .finish()
    }
}
