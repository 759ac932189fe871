//! A mutex with data that stays valid when a thread panics, a wait for a condition that another task
//! announces, and a future that may be shared.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::Notify;

/// Locks a mutex, even after another thread panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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

/// A future that is `Sync` although the boxed one is not, because a shared reference gives no
/// access to that. The mutex is never locked.
pub(crate) struct SyncFuture<'a, T>(Mutex<Pin<Box<dyn Future<Output = T> + Send + 'a>>>);

impl<'a, T> SyncFuture<'a, T> {
    pub(crate) fn new(future: Pin<Box<dyn Future<Output = T> + Send + 'a>>) -> Self {
        SyncFuture(Mutex::new(future))
    }
}

impl<T> Future for SyncFuture<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let future = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        future.as_mut().poll(context)
    }
}
