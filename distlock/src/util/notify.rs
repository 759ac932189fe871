//! Waiting for a condition that another task announces.

use std::pin::pin;

use tokio::sync::Notify;

/// Waits until `check` returns a value. Checks now and after each notification, and misses no
/// notification between a check and the next wait.
pub(crate) async fn wait_until<T>(notify: &Notify, mut check: impl FnMut() -> Option<T>) -> T {
    loop {
        let mut notified = pin!(notify.notified());
        notified.as_mut().enable();
        if let Some(value) = check() {
            return value;
        }
        notified.await;
    }
}
