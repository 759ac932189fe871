//! `on_busy`, `run_if` and `lock_if`: calls that are skipped, and calls without the lock.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use distlock::testing::{TestLocks, holder};
use distlock::{Error, LockManager, Outage, distributed_lock, try_current, with_manager};
use tokio::time::Instant;

type Job = Result<(), Error>;
type Maybe<T> = Option<T>;
type Found<T> = Result<Option<T>, Error>;

/// The value of `on_error` in functions without a `Result`.
const FAILED: u8 = 99;

fn failed(error: &Error) -> u8 {
    assert!(error.is_unavailable(), "{error:?}");
    FAILED
}

static UNIT: AtomicU32 = AtomicU32::new(0);

fn add(n: u8) {
    UNIT.fetch_add(n.into(), Ordering::Relaxed);
}

#[distributed_lock(key = "policies:skip", on_busy = "skip", on_error = |error| add(failed(&error)))]
async fn unit() {
    add(1);
}

#[distributed_lock(key = "policies:skip", on_busy = "skip", on_error = |error| Some(failed(&error)))]
async fn option() -> Maybe<u8> {
    Some(1)
}

#[distributed_lock(key = "policies:skip", on_busy = "skip")]
async fn result(runs: &AtomicU32) -> Job {
    runs.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

#[distributed_lock(key = "policies:skip", on_busy = "skip")]
async fn result_of_option(text: &str) -> Found<&str> {
    Ok(Some(text))
}

#[distributed_lock(key = "policies:skip", on_busy = "skip")]
async fn opaque() -> Result<Option<impl fmt::Display>, Error> {
    Ok(Some(1))
}

#[distributed_lock(keys = ["policies:skip", "policies:free"], on_busy = "skip")]
async fn several_keys() -> Found<u8> {
    Ok(Some(1))
}

#[distributed_lock(key = "policies:permits", permits = 2, on_busy = "skip")]
async fn permits() -> Found<u8> {
    Ok(Some(1))
}

/// Calls every function, and returns what each of them returned. `None` is an error.
async fn outcomes() -> [Option<Option<u8>>; 5] {
    let runs = AtomicU32::new(0);
    UNIT.store(0, Ordering::Relaxed);
    unit().await;
    let unit = u8::try_from(UNIT.load(Ordering::Relaxed)).expect("a few runs");
    let result = result(&runs).await.ok();
    let length = |text: &str| u8::try_from(text.len()).expect("a short text");
    [
        Some((unit > 0).then_some(unit)),
        Some(option().await),
        result.map(|()| (runs.into_inner() == 1).then_some(1)),
        result_of_option("a")
            .await
            .ok()
            .map(|text| text.map(length)),
        several_keys().await.ok(),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_busy_call_is_skipped_at_once_and_no_other_failure_is() {
    let locks = TestLocks::new();
    let started = Instant::now();
    let ran = Some(Some(1));
    assert_eq!(with_manager(locks.manager(), outcomes()).await, [ran; 5]);
    locks.on("policies:skip").busy(holder("worker-2"));
    let skipped = Some(None);
    let outcomes_now = with_manager(locks.manager(), outcomes()).await;
    assert_eq!(outcomes_now, [skipped; 5]);
    assert_eq!(started.elapsed(), Duration::ZERO);
    locks.clear();
    locks.on("policies:skip").unavailable(Outage::Denied);
    let failed = Some(Some(FAILED));
    let outcomes_now = with_manager(locks.manager(), outcomes()).await;
    assert_eq!(outcomes_now, [failed, failed, None, None, None]);
    locks.clear();
    locks.on("policies:skip").busy(holder("worker-2"));
    let skipped = with_manager(locks.manager(), opaque()).await;
    assert!(skipped.is_ok_and(|text| text.is_none()));
}

#[tokio::test]
async fn a_call_is_skipped_when_all_permits_are_taken() {
    let locks = LockManager::in_memory();
    with_manager(locks.clone(), async {
        let semaphore = locks.semaphore("policies:permits", 2);
        let first = semaphore.acquire().await.expect("a permit");
        assert_eq!(permits().await.expect("no failure"), Some(1));
        let second = semaphore.acquire().await.expect("a permit");
        assert_eq!(permits().await.expect("no failure"), None);
        first.release().await.expect("a hold");
        second.release().await.expect("a hold");
    })
    .await;
}

#[distributed_lock(key = "policies:waits", on_busy = "skip", wait = "3s")]
async fn skip_after_a_wait() -> Job {
    unreachable!("the lock is taken")
}

#[distributed_lock(
    key = "policies:waits",
    on_busy = |error| Ok(error.holders()[0].client.clone())
)]
async fn fallback() -> Result<String, Error> {
    Ok("ran".to_owned())
}

#[distributed_lock(key = "policies:waits", on_busy = cached, on_error = |error| failed(&error), wait = "0s")]
async fn fallback_by_path() -> u8 {
    1
}

fn cached(error: Error) -> u8 {
    let Error::Busy { holders, .. } = error else {
        panic!("{error:?}");
    };
    u8::try_from(holders.len()).unwrap_or(u8::MAX) + 6
}

#[tokio::test(start_paused = true)]
async fn a_fallback_replaces_the_result_of_a_busy_call() {
    let locks = TestLocks::new();
    let call = || with_manager(locks.manager(), fallback());
    let by_path = || with_manager(locks.manager(), fallback_by_path());
    assert_eq!(call().await.expect("a text"), "ran");
    assert_eq!(by_path().await, 1);

    locks.on("policies:waits").busy(holder("worker-2"));
    let started = Instant::now();
    assert_eq!(by_path().await, 7);
    assert_eq!(started.elapsed(), Duration::ZERO);
    let skipped = with_manager(locks.manager(), skip_after_a_wait()).await;
    skipped.expect("a skip");
    let after_3 = started.elapsed();
    assert!(is_about(after_3, 3), "{after_3:?}");
    // The default of `wait` applies.
    assert_eq!(call().await.expect("a fallback"), "worker-2");
    let after_10 = started.elapsed().saturating_sub(after_3);
    assert!(is_about(after_10, 10), "{after_10:?}");

    locks.clear();
    locks.on("policies:waits").unavailable(Outage::Denied);
    assert!(call().await.expect_err("an outage").is_unavailable());
    assert_eq!(by_path().await, FAILED);

    let locks = LockManager::builder().max_waiters(0).in_memory();
    let locks = locks.expect("a manager");
    let _held = locks.lock("policies:waits").acquire().await;
    let error = with_manager(locks, fallback()).await;
    assert!(matches!(error, Err(Error::QueueFull { .. })), "{error:?}");
}

fn is_about(elapsed: Duration, seconds: u64) -> bool {
    let expected = Duration::from_secs(seconds);
    elapsed >= expected && elapsed <= expected + Duration::from_millis(5)
}

#[distributed_lock(key = "policies:outer", on_busy = "skip")]
async fn outer() -> Job {
    inner().await
}

#[distributed_lock(key = "policies:inner", wait = "0s")]
async fn inner() -> Job {
    unreachable!("the lock is taken")
}

#[tokio::test]
async fn a_skip_within_the_body_is_a_result_of_the_body() {
    let locks = TestLocks::new();
    locks.on("policies:inner").once().busy(holder("worker-2"));
    let result = with_manager(locks.manager(), outer()).await;
    let error = result.expect_err("not a skip");
    assert!(error.is_busy() && error.key() == Some("policies:inner"));
    locks.on("policies:inner").already_ran(SystemTime::now());
    let result = with_manager(locks.manager(), outer()).await;
    assert!(matches!(result, Err(Error::AlreadyRan { key, .. }) if key == "policies:inner"));
}

/// The steps of a call, in their order.
#[derive(Default)]
struct Log(Mutex<Vec<&'static str>>);

impl Log {
    fn note(&self, step: &'static str, value: bool) -> bool {
        self.0.lock().expect("no panic").push(step);
        value
    }

    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

/// The value in the key.
impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.note("key", true);
        f.write_str("x")
    }
}

#[distributed_lock(
    key = "policies:<log>",
    lock_if = log.note("lock_if", shared),
    run_if = log.note("run_if", enabled),
    on_busy = |error| Err(error),
    wait = "0s"
)]
async fn conditional(log: &Log, enabled: bool, shared: bool) -> Result<Option<String>, Error> {
    log.note("body", true);
    Ok(try_current().map(|held| held.key().to_owned()))
}

/// The value of a run. Reading it is a step, before which no lock is held.
struct Value<'a>(&'a Log);

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.note("once_for", true);
        assert!(try_current().is_none());
        f.write_str("x")
    }
}

#[distributed_lock(
    key = "policies:once:<log>",
    once_for = Value(log),
    record_ttl = Duration::from_secs(log.note("record_ttl", true).into()),
    run_if = log.note("run_if", enabled),
    on_busy = |error| Err(error)
)]
async fn once(log: &Log, enabled: bool) -> Job {
    log.note("body", true);
    Ok(())
}

#[distributed_lock(key = "policies:around")]
async fn around(log: &Log) -> Result<Option<String>, Error> {
    conditional(log, true, false).await
}

#[tokio::test]
async fn conditions_are_evaluated_once_before_the_key_is_built() {
    let (log, locks) = (Log::default(), TestLocks::new());
    let call = |enabled, shared| with_manager(locks.manager(), conditional(&log, enabled, shared));
    let key = call(true, true).await.expect("a free lock");
    assert_eq!(key.as_deref(), Some("policies:x"));
    assert_eq!(log.take(), ["run_if", "lock_if", "key", "body"]);

    locks.on("policies:x").busy(holder("worker-2"));
    // Without the lock, which another client holds.
    assert_eq!(call(true, false).await.expect("no lock"), None);
    assert_eq!(log.take(), ["run_if", "lock_if", "body"]);

    let skipped = call(false, true).await.expect_err("a skip");
    assert!(matches!(&skipped, Error::RunIfFalse { template, .. } if template == "policies:<log>"));
    assert_eq!(log.take(), ["run_if"]);
    assert!(call(true, true).await.expect_err("a busy lock").is_busy());
    assert_eq!(locks.acquire_count("policies:x"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_runs_once_is_evaluated_once_before_anything_is_acquired() {
    let (log, locks) = (Log::default(), TestLocks::new());
    let call = |enabled| with_manager(locks.manager(), once(&log, enabled));
    call(true).await.expect("the first run");
    let before_acquire = ["run_if", "key", "record_ttl", "once_for"];
    assert_eq!(log.take(), [&before_acquire[..], &["body"]].concat());
    let error = call(true).await.expect_err("a second run");
    assert!(matches!(error, Error::AlreadyRan { .. }), "{error:?}");
    assert_eq!(log.take(), before_acquire);
    let error = call(false).await.expect_err("a skip");
    assert!(matches!(error, Error::RunIfFalse { .. }), "{error:?}");
    assert_eq!(log.take(), ["run_if"]);
    assert_eq!(locks.acquire_count("policies:once:x"), 1);
}

#[tokio::test]
async fn a_call_without_the_lock_needs_no_manager_and_sees_the_lock_around_it() {
    let (log, locks) = (Log::default(), TestLocks::new());
    let unlocked = conditional(&log, true, false).await;
    assert_eq!(unlocked.expect("no lock"), None);
    let skipped = conditional(&log, false, true).await;
    assert!(matches!(skipped, Err(Error::RunIfFalse { .. })));
    let around = with_manager(locks.manager(), around(&log)).await;
    assert_eq!(around.expect("a lock").as_deref(), Some("policies:around"));
}

#[distributed_lock(key = "policies:dropped", lock_if = false, on_error = |_| ())]
async fn suspended(dropped: SetOnDrop<'_>) {
    dropped.0.fetch_add(1, Ordering::Relaxed);
    std::future::pending::<()>().await;
}

struct SetOnDrop<'a>(&'a AtomicU32);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(10, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_dropped_call_without_the_lock_drops_its_body() {
    let dropped = AtomicU32::new(0);
    {
        let call = std::pin::pin!(suspended(SetOnDrop(&dropped)));
        assert!(futures::poll!(call).is_pending());
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }
    assert_eq!(dropped.load(Ordering::Relaxed), 11);
}

struct Reports {
    is_enabled: bool,
}

#[async_trait]
trait Report {
    async fn report(&self, day: u8, shared: bool, job: u8) -> Found<u8>;
}

#[async_trait]
impl Report for Reports {
    /// Only the arguments mention `shared` and `job`, which are not unused.
    #[distributed_lock(
        key = "policies:report",
        run_if = self.is_enabled,
        lock_if = shared,
        metadata = format!("job {job}"),
        on_busy = "skip"
    )]
    async fn report(&self, day: u8, shared: bool, job: u8) -> Found<u8> {
        Ok(try_current().is_some().then_some(day))
    }
}

#[tokio::test]
async fn conditions_of_a_method() {
    let locks = TestLocks::new();
    let call = async |is_enabled, shared| {
        let reports = Reports { is_enabled };
        let call = with_manager(locks.manager(), reports.report(7, shared, 3));
        call.await.expect("no failure")
    };
    assert_eq!(call(true, true).await, Some(7));
    assert_eq!(call(true, false).await, None);
    assert_eq!(call(false, true).await, None);
    assert_eq!(locks.acquire_count("policies:report"), 1);
}
