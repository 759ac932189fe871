//! A wrapper that makes a boxed future `Sync`.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use crate::store::BoxFuture;

/// A future that is `Sync` although the boxed one is not, because a shared reference gives no
/// access to that. The mutex is never locked.
pub(crate) struct SyncFuture<'a, T>(Mutex<BoxFuture<'a, T>>);

impl<'a, T> SyncFuture<'a, T> {
    pub(crate) fn new(future: BoxFuture<'a, T>) -> Self {
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
