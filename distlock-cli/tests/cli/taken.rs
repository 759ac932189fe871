//! A lock that is held is found, inspected and taken away while the application runs, and no two ever have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock::{Error, Held, LockManager, LossReason, distributed_lock, with_manager};
use distlock_tests::RedisServer;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::kit::{SOON, distlock, named, object, page, until_waiting};

/// What the lock is for: it sees every hold that works on it, and would see two at once.
#[derive(Debug, Default)]
struct Ledger {
    /// The token of who works on it and holds validly, or zero.
    works: AtomicU64,
    /// The newest token that it was told.
    newest: AtomicU64,
}

impl Ledger {
    /// Works for as long as the lock is held.
    async fn work(&self, held: &Held) -> Result<(), Error> {
        let token = held.fencing_token().get();
        let newest = self.newest.fetch_max(token, Ordering::SeqCst);
        assert!(token > newest, "{token} after {newest}");
        assert_eq!(self.works.swap(token, Ordering::SeqCst), 0, "two at once");
        let _leaves = Leaves(self);
        loop {
            assert!(held.is_held(), "a body that awaits is stopped at once");
            assert_eq!(self.works.load(Ordering::SeqCst), token, "two at once");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Also when its body is dropped.
struct Leaves<'a>(&'a Ledger);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.works.store(0, Ordering::SeqCst);
    }
}

#[distributed_lock(key = "import:<file>", lease = "3s", wait = "60s")]
async fn import(file: &str, ledger: &Ledger, begun: &UnboundedSender<u64>) -> Result<(), Error> {
    let held = distlock::current();
    // The test may have heard enough.
    let _ = begun.send(held.fencing_token().get());
    ledger.work(&held).await
}

/// An instance of the application: it imports until it is stopped, and says why it was.
async fn instance(locks: LockManager, ledger: Arc<Ledger>, begun: UnboundedSender<u64>) -> Error {
    let work = with_manager(locks, async { import("orders", &ledger, &begun).await });
    work.await.expect_err("it works until it is stopped")
}

async fn begins(begun: &mut UnboundedReceiver<u64>) -> u64 {
    let token = tokio::time::timeout(SOON, begun.recv()).await;
    token
        .expect("somebody works")
        .expect("an instance is there")
}

/// The program, while the application goes on.
async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("no panic")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_is_found_inspected_and_taken_away() {
    let server = RedisServer::start();
    let (url, ledger) = (server.url(), Arc::<Ledger>::default());
    let (tell, mut begun) = unbounded_channel();
    let mut instances = Vec::new();
    let mut managers = Vec::new();
    for name in ["app-1", "app-2", "app-3"] {
        let locks = named(&url, name).await;
        managers.push(locks.clone());
        instances.push(tokio::spawn(instance(locks, ledger.clone(), tell.clone())));
        if name == "app-1" {
            begins(&mut begun).await;
        } else {
            until_waiting(&managers[0], "import:orders", instances.len() as u64 - 1).await;
        }
    }
    for (turn, app) in instances.into_iter().enumerate() {
        let name = format!("app-{}", turn + 1);
        let (at, holder) = (url.clone(), name.clone());
        let listed = run(move || page(&mut distlock(&at, &["list", "import:"]))).await;
        assert!(
            listed.contains("import:orders") && listed.contains(&holder),
            "{listed}"
        );
        let at = url.clone();
        let seen =
            run(move || object(&mut distlock(&at, &["--json", "inspect", "import:orders"]))).await;
        assert_eq!(seen["waiters"], 2 - turn as u64, "{seen}");
        let at = url.clone();
        let unlocked =
            run(move || object(&mut distlock(&at, &["--json", "unlock", "import:orders"]))).await;
        assert_eq!(unlocked["how"], "released", "{unlocked}");
        assert_eq!(unlocked["holder"]["client"].as_str(), Some(&*name));
        let lost = tokio::time::timeout(SOON, app)
            .await
            .expect("it was told")
            .expect("no panic");
        let revoked = matches!(
            lost,
            Error::Lost {
                reason: LossReason::Revoked { .. },
                stopped: true,
                ..
            }
        );
        assert!(revoked, "{lost:?}");
        if turn < 2 {
            let next = begins(&mut begun).await;
            assert!(
                Some(next) > unlocked["fencing_token"].as_u64(),
                "{next} and {unlocked}"
            );
        }
    }
    let at = url.clone();
    let listed = run(move || object(&mut distlock(&at, &["--json", "list"]))).await;
    assert_eq!(
        listed["locks"].as_array().map(Vec::len),
        Some(0),
        "{listed}"
    );
}
