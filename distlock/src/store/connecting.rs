//! The state that all connections of a store share, and the wait of `connect` for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::store::{LockStore, StoreResult};
use crate::util::sync::wait_until;

/// State that all connections of a store share.
#[derive(Debug, Default)]
pub(crate) struct StoreState {
    /// Notified when a connection opens, fails or ends, and of every update of a cluster's slots.
    /// It wakes waiters in FIFO order, which is reproducible.
    pub(crate) changed: Notify,
    /// Set while `connect` waits. It returns the reason of an outage, so none is reported.
    pub(crate) is_connecting: AtomicBool,
}

/// Waits until a store that was opened lazily can be used, for up to `timeout`. Otherwise, closes it
/// and returns why, at once if the error does not pass by itself. While `is_connecting` is set, an
/// outage is not reported.
pub(crate) async fn wait_connected(
    store: &dyn LockStore,
    state: &StoreState,
    timeout: Duration,
) -> StoreResult<()> {
    let settled = |needs_all: bool| match store.connected() {
        Ok(has_all) => (has_all || !needs_all).then_some(Ok(())),
        Err(error) => (!error.outage.is_transient()).then_some(Err(error)),
    };
    // A store that can be used without some of its servers gives them this part of the time.
    let all = wait_until(&state.changed, || settled(true));
    let mut result = tokio::time::timeout(timeout / 4, all).await;
    if result.is_err() {
        let usable = wait_until(&state.changed, || settled(false));
        result = tokio::time::timeout(timeout / 4 * 3, usable).await;
    }
    let result = result.unwrap_or_else(|_| store.connected().map(drop));
    match &result {
        Ok(()) => state.is_connecting.store(false, Ordering::Relaxed),
        Err(_) => store.close(),
    }
    result
}
