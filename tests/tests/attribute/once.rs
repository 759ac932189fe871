//! `once_per`, `once_for` and `record_ttl`: one successful run in each period, or of each value.

use std::fmt::Display;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use distlock::{Error, LockManager, distributed_lock, with_manager};
use tokio::time::{Instant, sleep};

type Found<T> = Result<Option<T>, Error>;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs a test on a store of its own, which has the clock of the paused runtime.
async fn on_a_store<F: Future>(test: F) -> F::Output {
    let manager = LockManager::builder().in_memory_on_current_runtime();
    with_manager(manager.expect("a runtime"), test).await
}

static UNITS: AtomicU8 = AtomicU8::new(0);

#[distributed_lock(key = "once:unit", once_per = "1h", on_busy = "skip", on_error = |error| panic!("{error}"))]
async fn unit() {
    UNITS.fetch_add(1, Ordering::Relaxed);
}

/// A `None` is a success, because the function returns no `Result`.
#[distributed_lock(key = "once:option", once_per = "1h", on_busy = |_| None, on_error = |error| panic!("{error}"))]
async fn option(runs: &AtomicU8) -> Option<u8> {
    runs.fetch_add(1, Ordering::Relaxed);
    None
}

#[distributed_lock(key = "once:result", once_per = "1h", on_busy = "skip")]
async fn result(runs: &AtomicU8) -> Result<(), Error> {
    runs.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

#[distributed_lock(key = "once:alias", once_per = "1h", on_busy = "skip")]
async fn alias(text: &str) -> Found<&str> {
    Ok(Some(text))
}

#[distributed_lock(key = "once:opaque", once_per = "1h", on_busy = "skip")]
async fn opaque() -> Result<Option<impl Display>, Error> {
    Ok(Some(1))
}

/// Calls every function, and returns how often each of them ran its body.
async fn runs() -> [u8; 5] {
    let (option_runs, result_runs) = (AtomicU8::new(0), AtomicU8::new(0));
    UNITS.store(0, Ordering::Relaxed);
    unit().await;
    assert_eq!(option(&option_runs).await, None);
    result(&result_runs).await.expect("no failure");
    let alias = alias("ran").await.expect("no failure");
    let opaque = opaque().await.expect("no failure");
    [
        UNITS.load(Ordering::Relaxed),
        option_runs.into_inner(),
        result_runs.into_inner(),
        alias.is_some().into(),
        opaque.is_some().into(),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_call_within_the_period_is_skipped_at_once() {
    on_a_store(async {
        let started = Instant::now();
        assert_eq!(runs().await, [1; 5]);
        assert_eq!(runs().await, [0; 5]);
        assert_eq!(started.elapsed(), Duration::ZERO);
        // The slack of an hour is a minute.
        sleep(58 * MINUTE).await;
        assert_eq!(runs().await, [0; 5]);
        sleep(MINUTE).await;
        assert_eq!(runs().await, [1; 5]);
        assert_eq!(runs().await, [0; 5]);
    })
    .await;
}

#[distributed_lock(key = "once:ending", once_per = "1h", on_busy = "skip")]
async fn ending(end: Result<(), Error>, runs: &AtomicU8) -> Result<(), Error> {
    runs.fetch_add(1, Ordering::Relaxed);
    end
}

/// `conformance once` has the other ends of a body.
#[tokio::test(start_paused = true)]
async fn a_failure_does_not_close_the_period() {
    on_a_store(async {
        let runs = AtomicU8::new(0);
        for (end, expected) in [(Err(Error::NotInstalled), 1), (Ok(()), 2), (Ok(()), 2)] {
            let is_success = end.is_ok();
            assert_eq!(ending(end, &runs).await.is_ok(), is_success);
            assert_eq!(runs.load(Ordering::Relaxed), expected);
        }
    })
    .await;
}

#[distributed_lock(key = "once:error", once_per = "1h")]
async fn by_from() -> Result<u8, Error> {
    Ok(1)
}

#[distributed_lock(key = "once:error", once_per = 60 * MINUTE, on_error = |error| next_in_minutes(&error))]
async fn by_on_error() -> u64 {
    1
}

#[distributed_lock(
    key = "once:error",
    once_per = "1h",
    on_busy = |error| Ok(next_in_minutes(&error))
)]
async fn by_on_busy() -> Result<u64, Error> {
    Ok(1)
}

/// Returns the minutes from the last success to the next run.
fn next_in_minutes(error: &Error) -> u64 {
    let Error::AlreadyRan {
        key,
        last_success,
        next,
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(key, "once:error");
    let period = next.duration_since(*last_success);
    period.expect("a later time").as_secs() / 60
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_skip_returns_the_error() {
    on_a_store(async {
        assert_eq!(by_from().await.expect("the first run"), 1);
        let started = Instant::now();
        let error = by_from().await.expect_err("a second run");
        assert_eq!(next_in_minutes(&error), 59);
        assert_eq!(by_on_error().await, 59);
        assert_eq!(by_on_busy().await.expect("another value"), 59);
        // No call waits for the next period.
        assert_eq!(started.elapsed(), Duration::ZERO);
    })
    .await;
}

struct Event {
    id: String,
    number: u64,
}

struct Feed {
    source: &'static str,
    ttl: Duration,
}

impl Feed {
    fn named(&self, event: &Event) -> String {
        format!("{}-{}", self.source, event.number)
    }

    /// The expression borrows the parameter, which the body takes.
    #[distributed_lock(key = "once:field", once_for = event.id, record_ttl = self.ttl, on_busy = "skip")]
    async fn field(&self, event: Event) -> Found<String> {
        Ok(Some(event.id))
    }

    #[distributed_lock(
        key = "once:method",
        once_for = self.named(&event),
        record_ttl = "1m",
        on_busy = "skip"
    )]
    async fn method(self, event: Event) -> Found<String> {
        Ok(Some(event.id))
    }
}

#[distributed_lock(key = "once:generic", once_for = value, record_ttl = "1m", on_busy = "skip")]
async fn generic<T: Display>(value: T) -> Found<String> {
    Ok(Some(value.to_string()))
}

#[async_trait]
trait Handler {
    async fn handle(&self, number: u64) -> Found<String>;
}

#[async_trait]
impl Handler for Feed {
    /// Only the argument mentions `number`, which is not unused.
    #[distributed_lock(key = "once:trait", once_for = number, record_ttl = self.ttl, on_busy = "skip")]
    async fn handle(&self, number: u64) -> Found<String> {
        Ok(Some(self.source.to_owned()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_runs_once_until_its_record_has_expired() {
    let call = async |number: u64| {
        let event = || Event {
            id: format!("evt_{number}"),
            number,
        };
        let feed = || Feed {
            source: "shop",
            ttl: MINUTE,
        };
        [
            feed().field(event()).await,
            feed().method(event()).await,
            generic(number).await,
            feed().handle(number).await,
        ]
        .map(|ran| ran.expect("no failure").is_some())
    };
    on_a_store(async {
        for (number, pause, ran) in [
            (1, 0, true),
            (1, 1, false),
            (2, 58, true),
            (1, 1, false),
            (1, 0, true),
            (2, 0, false),
        ] {
            assert_eq!(call(number).await, [ran; 4], "{number}");
            sleep(Duration::from_secs(pause)).await;
        }
    })
    .await;
}

#[distributed_lock(key = "once:literal", once_for = "version 2", on_busy = "skip")]
async fn literal() -> Found<u8> {
    Ok(Some(1))
}

#[tokio::test(start_paused = true)]
async fn a_record_lasts_for_a_week_by_default() {
    on_a_store(async {
        for (pause, ran) in [(0, true), (6, false), (1, true)] {
            sleep(pause * DAY).await;
            assert_eq!(literal().await.expect("no failure").is_some(), ran);
        }
    })
    .await;
}
