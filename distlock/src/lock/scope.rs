//! The task-local stack of holds, for `current()` and for re-entry.
//!
//! Identity is the call tree, never the thread or the task: a spawned task inherits nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::error::HoldKind;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::manager::engine::held::HeldLock;
use crate::protocol::kind::Kind;

tokio::task_local! {
    static FRAMES: Arc<Frame>;
    static MANAGER: LockManager;
}

/// The mutex that makes sibling branches of one body take turns when they re-enter its lock.
pub(crate) type ReentryLock = Arc<tokio::sync::Mutex<()>>;

/// One hold on the stack.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) held: HeldLock,
    pub(crate) store: Arc<str>,
    pub(crate) reentry_lock: ReentryLock,
    pub(crate) parent: Option<Arc<Frame>>,
}

/// Returns the top of the stack of the running task.
pub(crate) fn top() -> Option<Arc<Frame>> {
    FRAMES.try_with(Arc::clone).ok()
}

/// Runs a future with a frame on its stack.
pub(crate) fn scoped<F: Future>(frame: Arc<Frame>, future: F) -> impl Future<Output = F::Output> {
    FRAMES.scope(frame, future)
}

/// Calls `work` with a frame on the stack.
pub(crate) fn sync_scoped<T>(frame: &Arc<Frame>, work: impl FnOnce() -> T) -> T {
    FRAMES.sync_scope(frame.clone(), work)
}

/// Calls `drop_it` with a frame on the re-entry stack, unless that thread-local has already been
/// destroyed. A runtime stored in a `thread_local!` drops its tasks when the thread ends, possibly
/// after that.
pub(crate) fn drop_scoped(frame: Arc<Frame>, drop_it: impl FnOnce()) {
    // A scoped future is dropped inside its scope if that is possible, and otherwise without it;
    // `sync_scope` would panic.
    drop(FRAMES.scope(frame, OnDrop(Some(drop_it))));
}

/// A future that calls a closure when it is dropped.
struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Future for OnDrop<F> {
    type Output = ();

    /// Never called.
    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(drop_it) = self.0.take() {
            drop_it();
        }
    }
}

/// Returns the frames of the running call tree, the innermost first.
pub(crate) fn frames() -> impl Iterator<Item = Arc<Frame>> {
    std::iter::successors(top(), |frame| frame.parent.clone())
}

/// Returns the keys of the other mutexes of a store that the running call tree holds, the innermost
/// first.
pub(crate) fn other_held_keys(store: &str, key: &str) -> Vec<String> {
    let mut known: Vec<_> = LockKey::new(key).into_iter().collect();
    let mut keys = Vec::new();
    for frame in frames() {
        let key = frame.held.lock_key();
        let is_mutex = frame.held.kind() == Kind::Mutex && &*frame.store == store;
        if is_mutex && !known.iter().any(|known| known.same_lock(key)) {
            keys.push(frame.held.key().to_owned());
            known.push(key.clone());
        }
    }
    keys
}

/// Returns the frames of this lock in the running call tree, the innermost first; of any store if
/// `store` is `None`.
pub(crate) fn frames_of(store: Option<&str>, key: &LockKey) -> impl Iterator<Item = Arc<Frame>> {
    frames().filter(move |frame| {
        store.is_none_or(|store| &*frame.store == store) && frame.held.lock_key().same_lock(key)
    })
}

/// Returns true for a hold of a lock, which has a fencing token, and not for permits.
pub(crate) fn is_lock(frame: &Arc<Frame>) -> bool {
    frame.held.kind().hold_kind() != HoldKind::Semaphore
}

/// Returns the innermost lock held by the running call, or by a call that awaits it. Permits of a
/// [`Semaphore`](crate::Semaphore) do not count; [`current_permit`](crate::current_permit) returns
/// those.
///
/// ```
/// # use distlock::{LockManager, Error};
/// # async fn f() -> Result<(), Error> {
/// # let manager = LockManager::in_memory();
/// manager.lock("report").run(async |_| {
///     assert_eq!(distlock::current().key(), "report");
///     Ok::<_, Error>(())
/// }).await?;
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
/// ```
///
/// # Panics
///
/// Outside of a locked body; [`try_current`] returns `None` there. A spawned task is outside: move
/// a clone of the [`HeldLock`] into it.
#[track_caller]
#[must_use]
pub fn current() -> HeldLock {
    match try_current() {
        Some(held) => held,
        None => panic!(
            "distlock::current() was called outside of a locked body (a spawned task is outside too: \
             move a clone of the HeldLock into it); use distlock::try_current() where there may be no lock"
        ),
    }
}

/// Returns the innermost lock that the running code holds, or `None` outside a locked body.
///
/// ```
/// # use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::in_memory();
/// fn fence() -> Option<distlock::FencingToken> {
///     distlock::try_current().map(|held| held.fencing_token())
/// }
///
/// assert_eq!(fence(), None);
/// let token = locks.lock("report").run(async |_| Ok::<_, distlock::Error>(fence())).await?;
/// assert!(token.is_some());
/// # Ok(()) }
/// ```
#[must_use]
pub fn try_current() -> Option<HeldLock> {
    frames().find(is_lock).map(|frame| frame.held.clone())
}

/// Returns the innermost hold of `key` by the running call, or by a call that awaits it.
/// Use it where a body holds several keys, because [`current`] returns only one of them.
///
/// `key` is the complete key. The attribute escapes the values that it inserts, so pass them
/// through [`escape`](crate::escape), and begin the text after each value with `:`. Numbers need no
/// escaping.
///
/// ```
/// # use distlock::{LockManager, Error};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let locks = LockManager::in_memory();
/// let both = locks.lock_all(["account:1", "account:2"]);
/// both.run(async |_| {
///     let token = distlock::current_for("account:2").fencing_token();
///     assert!(token.as_i64() > 0);
///     assert!(distlock::try_current_for("account:3").is_none());
///     Ok::<_, Error>(())
/// }).await
/// # }
/// ```
///
/// # Panics
///
/// Where the running code does not hold `key`; [`try_current_for`] returns `None` there. A spawned
/// task holds nothing: move a clone of the [`HeldLock`] into it.
#[track_caller]
#[must_use]
pub fn current_for(key: &str) -> HeldLock {
    match try_current_for(key) {
        Some(held) => held,
        None => panic!(
            "distlock::current_for({key:?}) was called outside of a body that holds this key (a spawned task is \
             outside too: move a clone of the HeldLock into it); use distlock::try_current_for() where it may not \
             be held"
        ),
    }
}

/// Returns the innermost hold of `key` in the running code, or `None` if it does not hold `key`.
/// See [`current_for`].
#[must_use]
pub fn try_current_for(key: &str) -> Option<HeldLock> {
    let key = LockKey::new(key).ok()?;
    let frame = frames_of(None, &key).find(is_lock)?;
    Some(frame.held.clone())
}

/// Runs a future, and all it awaits, with another default manager, for tests or several tenants.
/// Annotated functions use it instead of the [installed](crate::install) one. A spawned task does
/// not inherit it: wrap the future of the task as well.
///
/// ```
/// # use distlock::{distributed_lock, LockManager, Error};
/// #[distributed_lock(key = "greeting")]
/// async fn greet() -> Result<&'static str, Error> {
///     Ok("hello")
/// }
///
/// # async fn f() -> Result<(), Error> {
/// assert_eq!(distlock::with_manager(LockManager::in_memory(), greet()).await?, "hello");
/// # Ok(()) }
/// # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
/// ```
///
/// # Cancel safety
///
/// The same as that of the future.
pub async fn with_manager<F: Future>(manager: LockManager, future: F) -> F::Output {
    MANAGER.scope(manager, future).await
}

/// Returns the manager of the surrounding `with_manager`.
pub(crate) fn task_manager() -> Option<LockManager> {
    MANAGER.try_with(LockManager::clone).ok()
}
