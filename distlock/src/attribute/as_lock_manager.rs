//! The types that `manager = ...` accepts.

use std::sync::Arc;

use crate::manager::LockManager;

/// A type that `manager = ...` on the attribute accepts, because it contains a [`LockManager`].
///
/// Implement it for the state of your application. It is implemented for [`LockManager`], for
/// `TestLocks`, and for references, `Box` and `Arc` of every type that implements it.
///
/// ```
/// use std::sync::Arc;
/// use distlock::{AsLockManager, LockManager, distributed_lock};
///
/// struct AppState {
///     locks: LockManager,
/// }
///
/// impl AsLockManager for AppState {
///     fn as_lock_manager(&self) -> &LockManager {
///         &self.locks
///     }
/// }
///
/// #[distributed_lock(key = "inventory:<item_id>", manager = state)]
/// async fn reserve(state: Arc<AppState>, item_id: u64) -> Result<u64, distlock::Error> {
///     Ok(item_id)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// let state = Arc::new(AppState { locks: LockManager::in_memory() });
/// assert_eq!(reserve(state, 42).await?, 42);
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`manager = ...` needs a `LockManager`, and this is a `{Self}`",
    label = "expected a `LockManager`, `&LockManager` or `Arc<LockManager>`",
    note = "to pass a type of your own that contains a `LockManager`, implement `AsLockManager` for it"
)]
pub trait AsLockManager {
    /// Returns the manager that acquires the locks.
    ///
    /// ```
    /// use distlock::{AsLockManager, LockManager};
    ///
    /// async fn try_once(state: &impl AsLockManager) -> Result<bool, distlock::Error> {
    ///     let lock = state.as_lock_manager().lock("report");
    ///     Ok(lock.try_acquire().await?.is_some())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// assert!(try_once(&LockManager::in_memory()).await?);
    /// # Ok(()) }
    /// ```
    fn as_lock_manager(&self) -> &LockManager;
}

#[diagnostic::do_not_recommend]
impl AsLockManager for LockManager {
    fn as_lock_manager(&self) -> &LockManager {
        self
    }
}

macro_rules! impl_as_lock_manager {
    ($($pointer:ty),*) => {$(
        #[diagnostic::do_not_recommend]
        impl<M: AsLockManager + ?Sized> AsLockManager for $pointer {
            fn as_lock_manager(&self) -> &LockManager {
                (**self).as_lock_manager()
            }
        }
    )*};
}

impl_as_lock_manager!(&M, &mut M, Box<M>, Arc<M>);
