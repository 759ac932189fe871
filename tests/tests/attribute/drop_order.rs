//! Which values are dropped before the release, and which after it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock::{BodyState, Error, HeldLock};

use crate::seen::on_a_store_of_its_own;

/// A record of the drops of its values.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<(Option<HeldLock>, Vec<String>)>>);

impl Log {
    fn value(&self, name: &'static str) -> Value {
        Value {
            name,
            log: self.clone(),
        }
    }

    /// Sets the hold. Each later drop records its state.
    fn watch(&self, held: HeldLock) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 = Some(held);
    }

    fn lines(self) -> Vec<String> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut log.1)
    }
}

struct Value {
    name: &'static str,
    log: Log,
}

impl Drop for Value {
    fn drop(&mut self) {
        let mut log = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_held = log.0.as_ref().is_some_and(HeldLock::is_held);
        let when = match (is_held, distlock::try_current().is_some()) {
            (true, true) => "held",
            (false, true) => "lost",
            (false, false) => "free",
            (true, false) => "out of scope",
        };
        log.1.push(format!("{} {when}", self.name));
    }
}

#[distlock::distributed_lock(key = "drop-order")]
async fn function(log: &Log, used: Value, _unused: Value, _: Value) -> Result<(), Error> {
    log.watch(distlock::current());
    let _local = log.value("local");
    tokio::task::yield_now().await;
    let _ = &used;
    Ok(())
}

#[test]
fn values_of_the_body_are_dropped_before_the_release() {
    let log = Log::default();
    let call = function(
        &log,
        log.value("used"),
        log.value("unused"),
        log.value("wildcard"),
    );
    on_a_store_of_its_own(call).expect("no failure");
    assert_eq!(
        log.lines(),
        ["local held", "used held", "wildcard free", "unused free"]
    );
}

#[distlock::distributed_lock(key = "drop-order")]
async fn endless(log: &Log, used: Value) -> Result<(), Error> {
    log.watch(distlock::current());
    let _local = log.value("local");
    std::future::pending::<()>().await;
    let _ = &used;
    Ok(())
}

#[test]
fn a_call_that_is_dropped_drops_its_body_before_the_release() {
    let log = Log::default();
    on_a_store_of_its_own(async {
        let mut call = Box::pin(endless(&log, log.value("used")));
        // Polls until the body runs, because the body records its hold first.
        let running = std::future::poll_fn(|context| {
            assert!(call.as_mut().poll(context).is_pending());
            let body = log.0.lock().unwrap_or_else(PoisonError::into_inner);
            if body.0.is_some() {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        });
        running.await;
        drop(call);
    });
    assert_eq!(log.lines(), ["local held", "used held"]);
}

struct Job {
    used: Value,
    unused: Value,
}

impl Job {
    #[distlock::distributed_lock(key = "drop-order:self")]
    async fn run(self, log: &Log) -> Result<(), Error> {
        log.watch(distlock::current());
        drop(self.used);
        Ok(())
    }

    #[distlock::distributed_lock(key = "drop-order:whole-self")]
    async fn run_whole(self, log: &Log) -> Result<(), Error> {
        log.watch(distlock::current());
        let whole = self;
        tokio::task::yield_now().await;
        drop((whole.used, whole.unused));
        Ok(())
    }
}

#[test]
fn self_is_dropped_field_by_field() {
    let job = |log: &Log| Job {
        used: log.value("used"),
        unused: log.value("unused"),
    };
    let log = Log::default();
    on_a_store_of_its_own(job(&log).run(&log)).expect("no failure");
    assert_eq!(log.lines(), ["used held", "unused free"]);

    let log = Log::default();
    on_a_store_of_its_own(job(&log).run_whole(&log)).expect("no failure");
    assert_eq!(log.lines(), ["used held", "unused held"]);
}

#[async_trait::async_trait]
trait Boxed {
    async fn run(log: &Log, _unused: Value, _: Value) -> Result<(), Error>;
}

#[async_trait::async_trait]
impl Boxed for Job {
    #[distlock::distributed_lock(key = "drop-order:async-trait")]
    async fn run(log: &Log, _unused: Value, _: Value) -> Result<(), Error> {
        log.watch(distlock::current());
        Ok(())
    }
}

#[test]
fn below_async_trait_all_parameters_are_dropped_before_the_release() {
    let log = Log::default();
    let call = <Job as Boxed>::run(&log, log.value("unused"), log.value("wildcard"));
    on_a_store_of_its_own(call).expect("no failure");
    assert_eq!(log.lines(), ["wildcard held", "unused held"]);
}

#[distlock::distributed_lock(key = "drop-order:stopped", max_hold = "20ms")]
async fn stopped(log: &Log, used: Value) -> Result<(), Error> {
    log.watch(distlock::current());
    let _local = log.value("local");
    std::future::pending::<()>().await;
    drop(used);
    Ok(())
}

#[test]
fn a_stopped_body_is_dropped_at_its_await() {
    let log = Log::default();
    let outcome = on_a_store_of_its_own(stopped(&log, log.value("used")));
    match outcome.expect_err("a limit") {
        Error::MaxHoldExceeded {
            max_hold,
            body: BodyState::Stopped,
            ..
        } => assert_eq!(max_hold, Duration::from_millis(20)),
        other => panic!("not stopped: {other:?}"),
    }
    assert_eq!(log.lines(), ["local lost", "used lost"]);
}
