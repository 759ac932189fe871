//! Counting what is there, for those who wait until nothing is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::util::notified::until;

/// How many of something there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    there: AtomicUsize,
    none: Notify,
}

impl Counter {
    /// Counts one more, for as long as what is returned lives.
    pub(crate) fn one(&self) -> Counted {
        self.0.there.fetch_add(1, Ordering::AcqRel);
        Counted(self.0.clone())
    }

    pub(crate) fn is_none(&self) -> bool {
        self.0.there.load(Ordering::Acquire) == 0
    }

    pub(crate) async fn none(&self) {
        until(&self.0.none, || self.is_none().then_some(())).await;
    }
}

/// Is counted while it lives.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Count>);

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.there.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none.notify_waiters();
        }
    }
}
