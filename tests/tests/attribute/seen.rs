//! Checks from another client that a body runs under its lock.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Mutex, PoisonError};

use distlock::LockManager;

/// The state of a key under test. No two tests share a key.
struct Watched {
    observer: LockManager,
    bodies: u32,
}

static WATCHED: Mutex<BTreeMap<String, Watched>> = Mutex::new(BTreeMap::new());

/// Runs an annotated function on its own store. The body must call [`held`] once while it holds
/// `key`. The key must be free when the function has returned.
pub(crate) fn locked<F: Future>(key: &str, call: F) -> F::Output {
    block_on(async {
        let (manager, observer) = two_clients(key).await;
        watch(key, &observer);
        let output = distlock::with_manager(manager, call).await;
        assert_eq!(bodies(key), 1, "bodies that ran under `{key}`");
        let state = observer.inspect(key).await.expect("an inspection");
        assert!(state.holders.is_empty(), "`{key}` is not free: {state:?}");
        output
    })
}

/// Runs an annotated function like [`locked`], and asserts its result.
#[track_caller]
pub(crate) fn returns<T, E, U>(key: &str, call: impl Future<Output = Result<T, E>>, expected: &U)
where
    T: Debug + PartialEq<U>,
    E: Debug,
    U: Debug,
{
    let returned = locked(key, call).unwrap_or_else(|error| panic!("`{key}`: {error:?}"));
    assert_eq!(returned, *expected, "under `{key}`");
}

/// Like [`locked`], for a body that does not run to its end. The release need not be awaited then.
pub(crate) fn locked_and_stopped<F: Future>(key: &str, call: F) -> F::Output {
    block_on(async {
        let (manager, observer) = two_clients(key).await;
        watch(key, &observer);
        let output = distlock::with_manager(manager, call).await;
        assert_eq!(bodies(key), 1, "bodies that ran under `{key}`");
        let guard = observer.lock(key).acquire().await;
        guard.expect("a free key").release().await.expect("a hold");
        output
    })
}

/// Asserts, inside a body, that no other client can acquire the lock now.
pub(crate) async fn held() {
    let key = distlock::current().key().to_owned();
    let observer = {
        let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = watched.get_mut(&key);
        let watched = watched.unwrap_or_else(|| panic!("the body holds `{key}`"));
        watched.bodies += 1;
        watched.observer.clone()
    };
    let state = observer.inspect(&key).await.expect("an inspection");
    assert!(
        state.holders.len() == 1,
        "no client holds `{key}`: {state:?}"
    );
    // In its own task, because this one holds the lock and would re-enter it.
    let other = tokio::spawn(async move { observer.lock(key).try_acquire().await });
    let other = other.await.expect("no panic").expect("a working store");
    assert!(other.is_none(), "another client got the lock: {other:?}");
}

/// Runs a future on a runtime of its own.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

/// Runs a call on a store of its own.
pub(crate) fn on_a_store_of_its_own<F: Future>(call: F) -> F::Output {
    block_on(distlock::with_manager(LockManager::in_memory(), call))
}

/// Returns two clients of one store.
pub(crate) async fn two_clients(store: &str) -> (LockManager, LockManager) {
    let url = format!("memory:{store}");
    let first = LockManager::connect(&url).await.expect("a client");
    let second = LockManager::connect(&url).await.expect("a client");
    (first, second)
}

fn watch(key: &str, observer: &LockManager) {
    let observer = observer.clone();
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let bodies = 0;
    let before = watched.insert(key.to_owned(), Watched { observer, bodies });
    assert!(before.is_none(), "two tests use `{key}`");
}

fn bodies(key: &str) -> u32 {
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    watched.remove(key).expect("a watched key").bodies
}
