//! Waiting for a condition that another task announces.

use std::pin::pin;

use tokio::sync::Notify;

/// Checks now and after each notification, until the check gives a value. A notification between a
/// check and the wait after it is not missed.
pub(crate) async fn until<T>(notify: &Notify, mut check: impl FnMut() -> Option<T>) -> T {
    loop {
        let mut notified = pin!(notify.notified());
        notified.as_mut().enable();
        if let Some(value) = check() {
            return value;
        }
        notified.await;
    }
}
