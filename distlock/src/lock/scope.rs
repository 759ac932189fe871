//! The task-local stack of holds, for `current()` and for re-entry.
//!
//! Identity is the call tree, never the thread or the task: a spawned task inherits nothing.

use std::future::Future;
use std::pin::Pin;
use std::slice::from_ref;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::error::HoldKind;
use crate::key::{LockKey, unescape};
use crate::lock::held::HeldLock;
use crate::manager::LockManager;
use crate::manager::core::held::HoldHandle;
use crate::protocol::kind::Kind;
use crate::util::visible::Visible;

tokio::task_local! {
    static FRAMES: Arc<Frame>;
    static MANAGER: LockManager;
}

/// The mutex that makes sibling branches of one body take turns when they re-enter its lock.
pub(crate) type ReentryLock = Arc<tokio::sync::Mutex<()>>;

/// One hold on the stack.
pub(crate) struct Frame {
    pub(crate) held: HoldHandle,
    /// On the top frame of a body with several keys, their holds in the order of the call.
    pub(crate) named: Vec<HeldLock>,
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

/// Returns the lock of the innermost body that runs this code. In a body with permits of a
/// [`Semaphore`](crate::Semaphore), use [`current_permit`](crate::current_permit); in one with
/// several keys, [`current_at`].
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
/// Outside of a locked body, and in a body with permits, also if an outer body holds a lock;
/// [`try_current`] returns `None` there. A spawned task is outside: move a clone of the
/// [`HeldLock`] into it.
#[track_caller]
#[must_use]
pub fn current() -> HeldLock {
    match try_current() {
        Some(held) => held,
        None => panic!(
            "distlock::current() was called {}; use distlock::try_current() where there may be no lock",
            without_lock()
        ),
    }
}

const OUTSIDE: &str = "outside of a locked body (a spawned task is outside too: move a clone of the HeldLock into it)";

/// Returns the lock of the innermost body that runs this code, or `None` outside of a locked body
/// and in a body with permits. See [`current`].
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
    top()
        .filter(is_lock)
        .map(|frame| HeldLock(frame.held.clone()))
}

/// Returns the hold of a key of the innermost body that runs this code, by the position of the key
/// in the call, from 0. A body with a single key has only the position 0.
///
/// ```
/// # use distlock::{LockManager, Error};
/// use distlock::distributed_lock;
///
/// #[distributed_lock(keys = ["account:<from>", "account:<to>"])]
/// async fn transfer(from: &str, to: &str) -> Result<(), Error> {
///     assert_eq!(distlock::current_at(0).key(), "account:Mary%20Ann");
///     assert_eq!(distlock::current_at(1).key(), "account:Joe");
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// distlock::with_manager(LockManager::in_memory(), transfer("Mary Ann", "Joe")).await
/// # }
/// ```
///
/// # Panics
///
/// Where [`current`] does, and if the call has fewer keys; [`try_current_at`] returns `None` there.
#[track_caller]
#[must_use]
pub fn current_at(position: usize) -> HeldLock {
    match try_current_at(position) {
        Some(held) => held,
        None => panic!(
            "distlock::current_at({position}) was called {}",
            without_lock()
        ),
    }
}

/// Returns the reason why the running code has no such lock.
fn without_lock() -> &'static str {
    match top() {
        Some(frame) if is_lock(&frame) => "in a body with fewer keys; count from 0",
        Some(_) => {
            "in a body that holds permits, which have no HeldLock; use distlock::current_permit(), and pass the HeldLock \
             of an outer body as an argument"
        }
        None => OUTSIDE,
    }
}

/// Returns the hold of the key at this position, or `None` without it. See [`current_at`].
#[must_use]
pub fn try_current_at(position: usize) -> Option<HeldLock> {
    let frame = top().filter(is_lock)?;
    match &*frame.named {
        [] => (position == 0).then(|| HeldLock(frame.held.clone())),
        named => named.get(position).cloned(),
    }
}

/// Returns the innermost hold of `key` by the running call, or by a call that awaits it.
/// Where the body itself holds the key, [`current_at`] needs no complete key.
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
            "distlock::current_for({key:?}) was called {}; use distlock::try_current_for() where it may not be held",
            without_key(key)
        ),
    }
}

/// Returns the reason why the call tree has no lock with this key.
fn without_key(key: &str) -> String {
    let held: Vec<_> = frames().collect();
    let shown = |frame: &Arc<Frame>| {
        let what = if is_lock(frame) { "" } else { "permits of " };
        format!("{what}`{}`", Visible(frame.held.key()))
    };
    let meant = |frame: &&Arc<Frame>| {
        let text = unescape(frame.held.key());
        text == key || text == unescape(key)
    };
    if held.is_empty() {
        return OUTSIDE.to_owned();
    }
    let (how, meant, remedy) = match held.iter().find(meant) {
        Some(frame) if is_lock(frame) => (
            "without escaping",
            from_ref(frame),
            ": use `escape`, or `current_at`",
        ),
        Some(frame) => ("for a lock", from_ref(frame), ": use `current_permit`"),
        None => ("for another key", &held[..], ""),
    };
    let keys: Vec<_> = meant.iter().map(shown).collect();
    format!("{how}: you hold {}{remedy}", keys.join(", "))
}

/// Returns the innermost hold of `key` in the running code, or `None` if it does not hold `key`.
/// See [`current_for`].
#[must_use]
pub fn try_current_for(key: &str) -> Option<HeldLock> {
    let key = LockKey::new(key).ok()?;
    let frame = frames_of(None, &key).find(is_lock)?;
    Some(HeldLock(frame.held.clone()))
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
