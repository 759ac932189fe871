//! Mutexes with data that stays valid when a thread panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even after another thread panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
