//! Methods of types that wrap a lock, a guard or a hold.

/// Adds the options of the [`Lock`](crate::Lock) in the field `lock` that locks of several keys
/// have, too.
macro_rules! forward_options {
    ($type:ident) => {
        impl $type {
            /// Sets the lease, see [`Lock::lease`](crate::Lock::lease).
            pub fn lease(mut self, lease: std::time::Duration) -> Self {
                self.lock = self.lock.lease(lease);
                self
            }

            /// Sets how long to wait: at most 24 h, default 10 s, zero for one attempt. See
            /// [`Lock::wait`](crate::Lock::wait).
            pub fn wait(mut self, wait: std::time::Duration) -> Self {
                self.lock = self.lock.wait(wait);
                self
            }

            /// Sets the longest time of a hold, see [`Lock::max_hold`](crate::Lock::max_hold).
            pub fn max_hold(mut self, limit: std::time::Duration) -> Self {
                self.lock = self.lock.max_hold(limit);
                self
            }

            /// Sets how many replicas must have acknowledged a hold, see
            /// [`Lock::min_replicas`](crate::Lock::min_replicas).
            pub fn min_replicas(mut self, n: u32) -> Self {
                self.lock = self.lock.min_replicas(n);
                self
            }

            /// Sets whether a hold counts only once it is on the disk, see
            /// [`Lock::fsync`](crate::Lock::fsync).
            pub fn fsync(mut self, on: bool) -> Self {
                self.lock = self.lock.fsync(on);
                self
            }

            /// Sets the name in logs and metrics, see [`Lock::label`](crate::Lock::label).
            pub fn label(mut self, label: impl Into<std::borrow::Cow<'static, str>>) -> Self {
                self.lock = self.lock.label(label);
                self
            }

            /// Sets a text about this call that other clients see, see
            /// [`Lock::metadata`](crate::Lock::metadata).
            pub fn metadata(mut self, text: impl Into<String>) -> Self {
                self.lock = self.lock.metadata(text);
                self
            }
        }
    };
}

/// Adds the options and the key of the [`Lock`](crate::Lock) in the field `lock`.
macro_rules! forward_lock {
    ($type:ident) => {
        $crate::lock::forward::forward_options!($type);

        impl $type {
            /// Sets how long a hold stays taken at least, see
            /// [`Lock::min_hold`](crate::Lock::min_hold).
            pub fn min_hold(mut self, shortest: std::time::Duration) -> Self {
                self.lock = self.lock.min_hold(shortest);
                self
            }

            /// Returns the key as it was passed.
            #[must_use]
            pub fn key(&self) -> &str {
                self.lock.key()
            }
        }
    };
}

/// Adds the methods of the hold or guard in the only field.
macro_rules! forward_hold {
    ($type:ident) => {
        impl $type {
            /// Returns the key, see [`HeldLock::key`](crate::HeldLock::key).
            #[must_use]
            pub fn key(&self) -> &str {
                self.0.key()
            }

            /// Returns true if it is provably held at this moment, see
            /// [`HeldLock::is_held`](crate::HeldLock::is_held).
            #[must_use]
            pub fn is_held(&self) -> bool {
                self.0.is_held()
            }

            /// Waits until the store has confirmed the full lease, see
            /// [`HeldLock::confirmed`](crate::HeldLock::confirmed).
            ///
            /// # Errors
            ///
            /// The errors of [`HeldLock::confirmed`](crate::HeldLock::confirmed).
            ///
            /// # Cancel safety
            ///
            /// Dropping the future changes nothing: the watchdog confirms the hold without it.
            pub async fn confirmed(&self) -> Result<(), $crate::error::Error> {
                self.0.confirmed().await
            }

            /// Returns for how long it stays held without a further renewal, see
            /// [`HeldLock::remaining`](crate::HeldLock::remaining).
            #[must_use]
            pub fn remaining(&self) -> std::time::Duration {
                self.0.remaining()
            }

            /// Returns an error if it is no longer held, see
            /// [`HeldLock::check`](crate::HeldLock::check).
            ///
            /// # Errors
            ///
            /// The errors of [`HeldLock::check`](crate::HeldLock::check).
            pub fn check(&self) -> Result<(), $crate::error::Error> {
                self.0.check()
            }

            /// Waits until it is lost, and returns the error, see
            /// [`HeldLock::lost`](crate::HeldLock::lost).
            ///
            /// # Cancel safety
            ///
            /// Dropping the future has no effect on the hold.
            pub async fn lost(&self) -> $crate::error::Error {
                self.0.lost().await
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($type))
                    .field("key", &self.key())
                    .field("is_held", &self.is_held())
                    .finish_non_exhaustive()
            }
        }
    };
}

/// Adds the methods of the [`LockGuard`](crate::LockGuard) in the only field.
macro_rules! forward_guard {
    ($type:ident) => {
        $crate::lock::forward::forward_hold!($type);

        impl $type {
            /// Releases it, and waits for the store's reply, see
            /// [`LockGuard::release`](crate::LockGuard::release).
            ///
            /// # Errors
            ///
            /// The errors of [`LockGuard::release`](crate::LockGuard::release).
            ///
            /// # Cancel safety
            ///
            /// Dropping the future does not stop the release.
            pub async fn release(self) -> Result<(), $crate::error::Error> {
                self.0.release().await
            }

            /// Runs a future with this hold on the re-entry stack, see
            /// [`LockGuard::scope`](crate::LockGuard::scope).
            ///
            /// # Cancel safety
            ///
            /// The same as that of the future.
            pub async fn scope<F: Future>(&self, future: F) -> F::Output {
                self.0.scope(future).await
            }
        }
    };
}

pub(crate) use {forward_guard, forward_hold, forward_lock, forward_options};
