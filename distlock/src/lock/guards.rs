//! The guards of a call: one, or several that are held and released together.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all, select_all};

use crate::error::Error;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::lock::guard::LockGuard;
use crate::lock::held::HeldLock;
use crate::lock::scope::{self, Frame};
use crate::observer::event::AcquirePath;
use crate::util::clock::BootInstant;

/// The guards of a call, in the order in which they were acquired.
pub(crate) struct Guards {
    first: LockGuard,
    rest: Vec<LockGuard>,
    /// The holds in the order in which the call names their keys; empty for a call with one key.
    named: Vec<HeldLock>,
}

impl From<LockGuard> for Guards {
    fn from(first: LockGuard) -> Self {
        let (rest, named) = (Vec::new(), Vec::new());
        Guards { first, rest, named }
    }
}

impl Guards {
    /// Returns the guards, or `None` if there are none.
    pub(crate) fn collect(mut guards: impl Iterator<Item = LockGuard>) -> Option<Self> {
        let first = guards.next()?;
        let mut all = Guards::from(first);
        all.rest.extend(guards);
        Some(all)
    }

    pub(crate) fn push(&mut self, guard: LockGuard) {
        self.rest.push(guard);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &LockGuard> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Returns the guard of the first key, which for a `Lock` is the only one.
    pub(crate) fn first(&self) -> &LockGuard {
        &self.first
    }

    /// Returns the token, if there is exactly one.
    pub(crate) fn fencing_token(&self) -> Option<FencingToken> {
        self.first
            .held
            .public_token()
            .filter(|_| self.rest.is_empty())
    }

    pub(crate) fn find(&self, key: &LockKey) -> Option<&LockGuard> {
        self.iter()
            .find(|guard| guard.held.lock_key().same_lock(key))
    }

    /// Sets the order of the holds for the body: that of `keys`, which are the keys of this call.
    pub(crate) fn named(mut self, keys: &[String]) -> Self {
        let keys = keys.iter().filter_map(|key| LockKey::new(key).ok());
        let holds = keys.filter_map(|key| Some(self.find(&key)?.held()));
        self.named = holds.collect();
        self
    }

    /// Returns the holds of a call with several keys, in the order of its keys.
    pub(crate) fn held(&self) -> Vec<HeldLock> {
        self.named.clone()
    }

    /// Returns the error of the first hold that has ended.
    pub(crate) fn check_error(&self) -> Option<Error> {
        self.iter().find_map(|guard| guard.held.check_error())
    }

    /// Waits until a hold has ended, and returns its error.
    pub(crate) async fn lost(&self) -> Error {
        select_all(self.iter().map(|guard| Box::pin(guard.lost())))
            .await
            .0
    }

    /// Returns the time since the last hold began.
    pub(crate) fn age(&self) -> Duration {
        self.rest.last().unwrap_or(&self.first).held.age()
    }

    /// Starts the `max_hold` of holds that this call has acquired.
    pub(crate) fn start_max_hold(&self, now: BootInstant) {
        self.iter().for_each(|guard| guard.start_max_hold(now));
    }

    /// Returns a future that never resolves. While it exists, the holds count a running body, and
    /// it wakes its task once a hold ends.
    pub(crate) fn watch_body(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        let first = self.first.held();
        let rest: Vec<_> = self.rest.iter().map(LockGuard::held).collect();
        async move {
            let _body = first.0.entry.start_body();
            let _bodies: Vec<_> = rest.iter().map(|held| held.0.entry.start_body()).collect();
            let rest_ended = async {
                if rest.is_empty() {
                    pending().await
                }
                select_all(
                    rest.iter()
                        .map(|held| Box::pin(held.0.entry.ended.notified())),
                )
                .await;
            };
            tokio::select! {
                biased;
                () = first.0.entry.ended.notified() => {}
                () = rest_ended => {}
            }
            pending().await
        }
    }

    /// Returns the frames of all holds on top of the stack of the running task.
    pub(crate) fn frame(&self) -> Arc<Frame> {
        let first = self.first.frame_on(scope::top());
        let mut top = self
            .rest
            .iter()
            .fold(first, |below, guard| guard.frame_on(Some(below)));
        if let Some(top) = Arc::get_mut(&mut top) {
            top.named = self.held();
        }
        top
    }

    /// Returns how the call got its holds: by re-entry only if it re-entered all of them.
    pub(crate) fn path(&self) -> AcquirePath {
        let slowest = self
            .iter()
            .map(LockGuard::path)
            .max_by_key(|path| match path {
                AcquirePath::Reentered => 0,
                AcquirePath::Free => 1,
                AcquirePath::HandedOff => 2,
                AcquirePath::QueueCheck => 3,
            });
        slowest.unwrap_or(AcquirePath::Reentered)
    }

    /// Releases all locks after the work, together. If the releases show that a lock had already
    /// been lost, returns that error.
    pub(crate) async fn finish(self, success: bool) -> Option<Error> {
        let first = self.first.finish(success);
        if self.rest.is_empty() {
            return first.await;
        }
        let rest = join_all(self.rest.into_iter().map(|guard| guard.finish(success)));
        let (first, rest) = join(first, rest).await;
        first.or_else(|| rest.into_iter().flatten().next())
    }
}
