//! A cluster that serves several tests.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use distlock_tests::RedisCluster;
use tokio::sync::OwnedMutexGuard;

/// A cluster of three masters that tests use one after the other, for it takes seconds until one serves. It ends with the
/// last of them, and who panics leaves it to nobody.
pub(super) async fn in_turn() -> Turn {
    loop {
        let shared = shared();
        let turn = shared.turn.clone().lock_owned().await;
        if !shared.is_left.load(Ordering::Relaxed) {
            return Turn {
                shared,
                _turn: turn,
            };
        }
    }
}

fn shared() -> Arc<Shared> {
    static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = shared.upgrade();
    known
        .filter(|known| !known.is_left.load(Ordering::Relaxed))
        .unwrap_or_else(|| {
            let new = Arc::new(Shared {
                cluster: RedisCluster::start(3),
                turn: Arc::default(),
                is_left: AtomicBool::new(false),
            });
            *shared = Arc::downgrade(&new);
            new
        })
}

struct Shared {
    cluster: RedisCluster,
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Nobody knows in what state.
    is_left: AtomicBool,
}

/// A test's time with it.
pub(super) struct Turn {
    shared: Arc<Shared>,
    _turn: OwnedMutexGuard<()>,
}

impl Deref for Turn {
    type Target = RedisCluster;

    fn deref(&self) -> &RedisCluster {
        &self.shared.cluster
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.is_left.store(true, Ordering::Relaxed);
        }
    }
}
