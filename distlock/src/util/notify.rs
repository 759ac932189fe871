//! Waiting for a condition that another task announces.

use tokio::sync::Notify;

/// Waits until `check` returns a value. Checks now and after each notification of all waiters. It
/// misses none, because a wait counts from the creation of its future.
pub(crate) async fn wait_until<T>(notify: &Notify, mut check: impl FnMut() -> Option<T>) -> T {
    loop {
        let notified = notify.notified();
        if let Some(value) = check() {
            return value;
        }
        notified.await;
    }
}
