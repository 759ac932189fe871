//! Methods of types that wrap a lock, a guard or a hold.

/// Adds setters of the options in a field: those that every lock has, and `more`. Their
/// documentation links to the setters of [`Lock`](crate::Lock), which have the same names.
macro_rules! setters {
    ($type:ident, $($field:ident).+: $($more:tt)*) => {
        impl $type {
            fn options_mut(&mut self) -> &mut $crate::config::options::Options {
                &mut self.$($field).+
            }
        }

        $crate::lock::forward::setters! {
            @$type
            "Sets the lease" lease(lease: std::time::Duration) |options| options.lease = Some(lease),
            "Sets how long to wait: at most 24 h, default 10 s, zero for one attempt"
                wait(wait: std::time::Duration) |options| options.wait = Some(wait),
            "Sets the longest time of a hold"
                max_hold(limit: std::time::Duration) |options| options.max_hold = Some(limit),
            "Sets how many replicas must have acknowledged a hold"
                min_replicas(n: u32) |options| options.min_replicas = Some(n),
            "Sets whether a hold counts only once it is on the disk"
                fsync(on: bool) |options| options.fsync = Some(on),
            "Sets the name in logs and metrics"
                label(label: impl Into<std::borrow::Cow<'static, str>>) |options| options.label = Some(label.into()),
            "Sets a text about this call that other clients see"
                metadata(text: impl Into<String>) |options| options.set_metadata(&text.into()),
            $($more)*
        }
    };
    (@$type:ident $($text:literal $name:ident($value:ident: $value_type:ty) |$options:ident| $set:expr,)+) => {
        impl $type {$(
            #[doc = concat!(
                $text, ", see [`Lock::", stringify!($name), "`](crate::Lock::", stringify!($name), ")."
            )]
            pub fn $name(mut self, $value: $value_type) -> Self {
                let $options = self.options_mut();
                $set;
                self
            }
        )+}
    };
}

/// Adds the options and the key of the [`Lock`](crate::Lock) in the field `lock`.
macro_rules! forward_lock {
    ($type:ident) => {
        $crate::lock::forward::setters! {
            $type, lock.options:
            "Sets how long a hold stays taken at least"
                min_hold(shortest: std::time::Duration) |options| options.min_hold = Some(shortest),
        }

        impl $type {
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

pub(crate) use {forward_guard, forward_hold, forward_lock, setters};
