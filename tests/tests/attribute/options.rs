//! The effect of each argument.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::testing::{TestLocks, holder};
use distlock::{AsLockManager, BodyState, Error, LockManager, LossReason};

use crate::seen::{block_on, held, locked, two_clients};

/// The default of `wait`.
const WAIT: Duration = Duration::from_secs(10);

/// Durations that are known only at run time.
#[derive(Clone, Copy)]
struct Times {
    lease: Duration,
    wait: Duration,
    max_hold: Duration,
    min_hold: Duration,
}

const TIMES: Times = Times {
    lease: Duration::from_secs(90),
    wait: Duration::from_secs(3),
    max_hold: Duration::from_secs(3600),
    min_hold: Duration::from_secs(60),
};

impl Times {
    #[distlock::distributed_lock(
        key = "options:times",
        lease = self.lease,
        wait = self.wait,
        max_hold = self.max_hold,
        min_hold = self.min_hold
    )]
    async fn call(self) -> Result<Duration, Error> {
        Ok(distlock::current().remaining())
    }
}

#[distlock::distributed_lock(key = "options:max-hold", max_hold = seconds(n), lease = "1d")]
async fn pending(n: u64) -> Result<(), Error> {
    std::future::pending().await
}

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test(start_paused = true)]
async fn durations_may_be_expressions() {
    let locks = TestLocks::new();
    let call = |times: Times| distlock::with_manager(locks.manager(), times.call());
    locks.on("options:times").once().busy(holder("worker-2"));
    let error = call(TIMES).await.expect_err("a busy lock");
    assert!(matches!(error, Error::Busy { waited, .. } if waited >= TIMES.wait && waited < WAIT));
    let remaining = call(TIMES).await.expect("a lock");
    assert!(remaining > seconds(60), "{remaining:?}");
    assert!(remaining <= TIMES.lease, "{remaining:?}");
    let kept = locks.manager().lock("options:times").try_acquire().await;
    assert!(kept.expect("an attempt").is_none(), "no `min_hold`");
    let call = distlock::with_manager(locks.manager(), pending(2));
    let stopped = tokio::time::timeout(seconds(60), call).await;
    let error = stopped.expect("no limit").expect_err("a limit");
    assert!(matches!(error, Error::MaxHoldExceeded { max_hold, .. } if max_hold == seconds(2)));
}

#[distlock::distributed_lock(key = "options:label:<n>", label = "reservations", wait = "0s")]
async fn labeled(n: u8) -> Result<u8, Error> {
    Ok(n)
}

#[distlock::distributed_lock(keys = ["options:labels:<n>", "options:labels"], label = "both", wait = "0s")]
async fn labeled_keys(n: u8) -> Result<u8, Error> {
    Ok(n)
}

#[tokio::test]
async fn label_replaces_the_template() {
    let locks = TestLocks::new();
    let one = |n| distlock::with_manager(locks.manager(), labeled(n));
    let both = |n| distlock::with_manager(locks.manager(), labeled_keys(n));
    for template in ["options:label:<n>", "options:labels:<n>, options:labels"] {
        locks.on_label(template).busy(holder("worker-2"));
    }
    assert_eq!(one(1).await.expect("another label"), 1);
    assert_eq!(both(1).await.expect("another label"), 1);
    for label in ["reservations", "both"] {
        locks.on_label(label).busy(holder("worker-2"));
    }
    assert!(one(1).await.expect_err("a busy label").is_busy());
    assert!(both(1).await.expect_err("a busy label").is_busy());
}

/// A job that other clients see by its number.
struct Export {
    number: u32,
}

impl Export {
    #[distlock::distributed_lock(key = "options:metadata", metadata = format!("export {}", self.number))]
    async fn run(&self, other: &LockManager) -> Result<String, Error> {
        let state = other.inspect("options:metadata").await?;
        Ok(state.holders[0].metadata.clone().unwrap_or_default())
    }
}

#[distlock::distributed_lock(keys = ["options:metadata", "options:metadata:2"], metadata = text)]
async fn described(text: &str, other: &LockManager) -> Result<String, Error> {
    let state = other.inspect("options:metadata:2").await?;
    Ok(state.holders[0].metadata.clone().unwrap_or_default())
}

#[test]
fn metadata_is_seen_by_other_clients() {
    block_on(async {
        let (manager, other) = two_clients("options-metadata").await;
        let call = Export { number: 7 };
        let seen = distlock::with_manager(manager.clone(), call.run(&other)).await;
        assert_eq!(seen.expect("a lock"), "export 7");
        let call = |text| distlock::with_manager(manager.clone(), described(text, &other));
        assert_eq!(call("import").await.expect("a lock"), "import");
    });
}

type Outcome = Result<u8, Error>;

#[distlock::distributed_lock(key = "options:min-hold:<n>", min_hold = "1h")]
async fn with_min_hold(n: u8) -> Outcome {
    if n == 0 {
        return Err(Error::NotInstalled);
    }
    Ok(n)
}

#[distlock::distributed_lock(
    key = "options:min-hold:<n>",
    on_error = |_| BTreeMap::<u8, u8>::new().remove(&0),
    min_hold = "1h"
)]
async fn no_result_with_min_hold(n: u8) -> Option<u8> {
    n.checked_sub(200)
}

#[test]
fn min_hold_keeps_the_key_taken_after_a_success() {
    block_on(async {
        let (manager, other) = two_clients("options-min-hold").await;
        let calls = async {
            let _: Outcome = with_min_hold(0).await;
            let _: Outcome = with_min_hold(1).await;
            let _: Option<u8> = no_result_with_min_hold(2).await;
        };
        distlock::with_manager(manager, calls).await;
        for (n, taken) in [(0, false), (1, true), (2, true)] {
            let key = format!("options:min-hold:{n}");
            let state = other.inspect(&key).await.expect("an inspection");
            assert_eq!(state.holders.len() == 1, taken, "{key}: {state:?}");
        }
    });
}

#[distlock::distributed_lock(key = "options:min-replicas", min_replicas = 1)]
async fn with_min_replicas() -> Outcome {
    Ok(1)
}

#[distlock::distributed_lock(key = "options:min-replicas", min_replicas = 0)]
async fn without_replicas() -> Outcome {
    Ok(0)
}

#[test]
fn min_replicas_reaches_the_lock() {
    block_on(async {
        let (manager, _other) = two_clients("options-min-replicas").await;
        // The memory store has no replicas.
        let error = distlock::with_manager(manager.clone(), with_min_replicas()).await;
        let error = error.expect_err("no replicas");
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(error.to_string().contains("`min_replicas`"), "{error}");
        let none = distlock::with_manager(manager, without_replicas()).await;
        assert_eq!(none.expect("none are asked for"), 0);
    });
}

struct Shop {
    locks: LockManager,
    shared: Arc<LockManager>,
}

impl Shop {
    fn manager(&self) -> &LockManager {
        &self.locks
    }

    #[distlock::distributed_lock(key = "options:manager:reference", manager = &self.locks)]
    async fn reference(self) -> Result<Self, Error> {
        held().await;
        Ok(self)
    }

    #[distlock::distributed_lock(key = "options:manager:arc", manager = self.shared)]
    async fn arc(&mut self) -> Result<&mut Self, Error> {
        held().await;
        Ok(self)
    }

    #[distlock::distributed_lock(key = "options:manager:method", manager = self.manager())]
    async fn method(self: Arc<Self>) -> Result<(), Error> {
        held().await;
        Ok(())
    }
}

#[distlock::distributed_lock(key = "options:manager:moved", manager = pair.0)]
async fn moved(pair: (LockManager, u8)) -> Result<LockManager, Error> {
    held().await;
    Ok(pair.0)
}

#[distlock::distributed_lock(key = "options:manager:value", manager = locks.clone())]
async fn value(locks: &LockManager) -> Result<(), Error> {
    held().await;
    let _ = locks;
    Ok(())
}

/// Application state that contains the manager.
struct AppState {
    locks: LockManager,
}

impl AsLockManager for AppState {
    fn as_lock_manager(&self) -> &LockManager {
        &self.locks
    }
}

impl AppState {
    #[distlock::distributed_lock(key = "options:manager:state", manager = self)]
    async fn by_reference(&self) -> Result<(), Error> {
        held().await;
        Ok(())
    }

    #[distlock::distributed_lock(key = "options:manager:state-mut", manager = self)]
    async fn by_mutable_reference(&mut self) -> Result<&mut Self, Error> {
        held().await;
        Ok(self)
    }
}

#[distlock::distributed_lock(key = "options:manager:state-box", manager = state)]
async fn boxed_state(state: Box<dyn AsLockManager>) -> Result<(), Error> {
    held().await;
    Ok(())
}

/// Returns a manager of the store that the observer of [`locked`] reads.
fn manager_of(key: &str) -> LockManager {
    block_on(two_clients(key)).0
}

fn shop_of(key: &str) -> Shop {
    let locks = manager_of(key);
    let shared = Arc::new(locks.clone());
    Shop { locks, shared }
}

fn app_state_of(key: &str) -> AppState {
    let locks = manager_of(key);
    AppState { locks }
}

/// Runs `locked` with another manager for the task, which the call must not use.
fn locked_elsewhere<F: Future>(key: &str, call: F) -> F::Output {
    locked(key, distlock::with_manager(LockManager::in_memory(), call))
}

#[test]
fn manager_names_the_manager() {
    let key = "options:manager:reference";
    locked_elsewhere(key, shop_of(key).reference()).expect("a shop");
    let key = "options:manager:arc";
    locked_elsewhere(key, shop_of(key).arc()).expect("a shop");
    let key = "options:manager:method";
    locked_elsewhere(key, Arc::new(shop_of(key)).method()).expect("no failure");
    let key = "options:manager:moved";
    locked_elsewhere(key, moved((manager_of(key), 1))).expect("a manager");
    let key = "options:manager:value";
    locked_elsewhere(key, value(&manager_of(key))).expect("no failure");
}

#[test]
fn manager_names_an_application_state() {
    let key = "options:manager:state";
    locked_elsewhere(key, app_state_of(key).by_reference()).expect("no failure");
    let key = "options:manager:state-mut";
    locked_elsewhere(key, app_state_of(key).by_mutable_reference()).expect("a state");
    let key = "options:manager:state-box";
    locked_elsewhere(key, boxed_state(Box::new(app_state_of(key)))).expect("no failure");
}

/// Ends the lock of the running body.
async fn lose(locks: &LockManager) -> Error {
    let locks = locks.clone();
    // Not awaited: a shutdown waits for the bodies.
    tokio::spawn(async move { locks.shutdown().await });
    distlock::current().lost().await
}

#[distlock::distributed_lock(key = "options:on-lost", manager = locks)]
async fn cancelled(locks: &LockManager, went_on: &AtomicBool) -> Result<&'static str, Error> {
    lose(locks).await;
    tokio::task::yield_now().await;
    went_on.store(true, Ordering::Relaxed);
    Ok("finished")
}

#[distlock::distributed_lock(key = "options:on-lost", manager = locks, on_lost = "cancel")]
async fn cancelled_explicitly(locks: &LockManager) -> Result<&'static str, Error> {
    lose(locks).await;
    tokio::task::yield_now().await;
    Ok("finished")
}

#[distlock::distributed_lock(key = "options:on-lost", manager = locks, on_lost = "finish")]
async fn finished(locks: &LockManager) -> Result<&'static str, Error> {
    assert!(distlock::current().is_held());
    lose(locks).await;
    tokio::task::yield_now().await;
    assert!(!distlock::current().is_held());
    Ok("finished")
}

#[test]
fn on_lost_decides_whether_the_body_continues() {
    let went_on = AtomicBool::new(false);
    let outcome = block_on(async { cancelled(&LockManager::in_memory(), &went_on).await });
    assert!(was_shut_down(&outcome), "{outcome:?}");
    assert!(!went_on.into_inner());
    let outcome = block_on(async { cancelled_explicitly(&LockManager::in_memory()).await });
    assert!(was_shut_down(&outcome), "{outcome:?}");
    let outcome = block_on(async { finished(&LockManager::in_memory()).await });
    assert_eq!(outcome.expect("the body's result"), "finished");
}

fn was_shut_down(outcome: &Result<&'static str, Error>) -> bool {
    matches!(
        outcome,
        Err(Error::Lost {
            body: BodyState::Stopped,
            reason: LossReason::ShutDown,
            ..
        })
    )
}

#[distlock::distributed_lock(key = "options:on-error", on_error = |_| 7)]
async fn plain_value() -> u8 {
    held().await;
    1
}

#[distlock::distributed_lock(key = "options:on-error", on_error = nothing)]
async fn by_path(text: &str) -> Option<&str> {
    Some(text)
}

fn nothing<T>(_: Error) -> Option<T> {
    None
}

#[distlock::distributed_lock(key = "options:on-error", on_error = |error| error.to_string())]
async fn opaque() -> impl Display {
    String::from("as written")
}

#[distlock::distributed_lock(key = "options:on-error", on_error = |_| {})]
async fn unit() {
    unreachable!("there is no manager")
}

struct Response;

impl Response {
    fn failed(_: Error) -> Self {
        Response
    }

    #[distlock::distributed_lock(key = "options:on-error", on_error = Self::failed)]
    async fn make() -> Self {
        unreachable!("there is no manager")
    }
}

#[test]
fn on_error_makes_the_result_of_a_failure() {
    assert_eq!(locked("options:on-error", plain_value()), 1);
    block_on(async {
        assert_eq!(plain_value().await, 7);
        assert_eq!(by_path("text").await, None);
        let message = opaque().await.to_string();
        assert!(message.contains("install"), "{message}");
        unit().await;
        let Response = Response::make().await;
    });
}

mod path {
    pub(crate) mod to {
        pub(crate) use distlock as lock;
    }
}

#[distlock::distributed_lock(
    key = "options:crate",
    crate = crate::options::path::to::lock,
    min_hold = "1ms",
    manager = LockManager::in_memory(),
    on_error = |error| Err(error)
)]
async fn reexported() -> Result<&'static str, Error> {
    Ok("reexported")
}

#[test]
fn crate_sets_the_path_of_distlock() {
    assert_eq!(block_on(reexported()).expect("a text"), "reexported");
}
