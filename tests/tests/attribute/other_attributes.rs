//! Other attributes that also rewrite the function.

use std::sync::{LazyLock, Mutex, PoisonError};

use distlock::{Error, LockManager};
use tracing_subscriber::Registry;

use crate::seen::{block_on, held, locked, on_a_store_of_its_own, returns, two_clients};

/// Two clients of one store, for functions that start their own runtime.
static CLIENTS: LazyLock<(LockManager, LockManager)> = LazyLock::new(|| {
    // On a thread, because this one may already be in a runtime.
    let thread = std::thread::spawn(|| block_on(two_clients("other-attributes")));
    thread.join().expect("two clients")
});

async fn is_taken(key: &str) -> bool {
    let state = CLIENTS.1.inspect(key).await;
    state.expect("an inspection").holders.len() == 1
}

/// Asserts, in a body, that the second client sees the lock.
async fn held_by_the_first_client(key: &str) {
    assert_eq!(distlock::current().key(), key);
    assert!(is_taken(key).await);
}

#[distlock::distributed_lock(key = "other:tokio-main", manager = CLIENTS.0)]
#[tokio::main(flavor = "current_thread")]
async fn above_main() -> Result<u8, Error> {
    held_by_the_first_client("other:tokio-main").await;
    Ok(1)
}

#[test]
fn above_tokio_main() {
    assert_eq!(above_main().expect("a number"), 1);
    assert!(!block_on(is_taken("other:tokio-main")));
}

#[distlock::distributed_lock(key = "other:tokio-test", manager = CLIENTS.0)]
#[tokio::test]
async fn above_tokio_test() -> Result<(), Error> {
    held_by_the_first_client("other:tokio-test").await;
    Ok(())
}

#[distlock::distributed_lock(
    key = "other:tokio-test-unit",
    manager = CLIENTS.0,
    on_error = |error| panic!("{error}")
)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn above_tokio_test_without_a_result() {
    held_by_the_first_client("other:tokio-test-unit").await;
}

#[distlock::distributed_lock(key = "other:upper", wait = "0s")]
#[distlock::distributed_lock(key = "other:lower", wait = "0s")]
async fn stacked() -> Result<String, Error> {
    Ok(distlock::current().key().to_owned())
}

/// Returns the key that `stacked` found taken, and whether it had acquired `other_key`.
async fn stacked_against(key: &str, other_key: &str) -> (Option<String>, bool) {
    let (manager, other) = two_clients(&format!("stacked-{key}")).await;
    let guard = other.lock(key).acquire().await.expect("a free key");
    let failure = distlock::with_manager(manager, stacked()).await;
    guard.release().await.expect("a hold");
    let state = other.inspect(other_key).await.expect("an inspection");
    assert!(state.holders.is_empty(), "{state:?}");
    let failure = failure.expect_err("a taken lock");
    (
        failure.key().map(str::to_owned),
        state.last_fencing_token.is_some(),
    )
}

#[test]
fn of_two_locks_the_lower_one_is_the_outer() {
    let both = on_a_store_of_its_own(stacked());
    assert_eq!(both.expect("both locks"), "other:upper");
    block_on(async {
        let busy = stacked_against("other:upper", "other:lower").await;
        assert_eq!(busy, (Some("other:upper".to_owned()), true));
        let busy = stacked_against("other:lower", "other:upper").await;
        assert_eq!(busy, (Some("other:lower".to_owned()), false));
    });
}

/// The spans in which the locks were acquired.
static EVALUATED_IN: Mutex<Vec<Option<&'static str>>> = Mutex::new(Vec::new());

fn span() -> Option<&'static str> {
    tracing::Span::current()
        .metadata()
        .map(tracing::Metadata::name)
}

fn evaluated(locks: &LockManager) -> &LockManager {
    let mut evaluated_in = EVALUATED_IN.lock().unwrap_or_else(PoisonError::into_inner);
    evaluated_in.push(span());
    locks
}

#[tracing::instrument(skip_all)]
#[distlock::distributed_lock(key = "other:instrument-above:<n>", manager = evaluated(locks))]
async fn instrument_above(locks: &LockManager, n: u8) -> Result<(&LockManager, u8), Error> {
    assert_eq!(span(), Some("instrument_above"));
    Ok((locks, n))
}

#[distlock::distributed_lock(key = "other:instrument-below:<n>", manager = evaluated(locks))]
#[tracing::instrument(skip_all, err(Debug))]
async fn instrument_below(locks: &LockManager, n: u8) -> Result<(&LockManager, u8), Error> {
    // The span of the attribute contains the span of the lock, which contains the body.
    assert_eq!(span(), Some("distlock.run"));
    Ok((locks, n))
}

#[test]
fn only_below_the_span_of_instrument_covers_the_waiting() {
    let locks = LockManager::in_memory();
    // Set for all threads. Otherwise both of two threads can lose a span, if one has its own
    // subscriber when the other first reaches that span.
    tracing::subscriber::set_global_default(Registry::default()).expect("it is set once");
    block_on(async {
        assert_eq!(instrument_above(&locks, 1).await.expect("it").1, 1);
        assert_eq!(instrument_below(&locks, 2).await.expect("it").1, 2);
    });
    let evaluated_in = EVALUATED_IN.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(*evaluated_in, [None, Some("instrument_below")]);
}

struct Job(u8);

#[async_trait::async_trait]
trait Run {
    async fn above(&self, n: u8, m: u8) -> Result<(), Error>;
    async fn below(&self, n: u8) -> Result<(), Error>;
    async fn stacked(&self, n: u8, m: u8) -> Result<(), Error>;
    async fn unit(&self, n: u8);
}

#[async_trait::async_trait]
impl Run for Job {
    // Only the arguments of the attribute mention the parameters, which are not unused.
    #[tracing::instrument(skip(self), ret, err)]
    #[distlock::distributed_lock(key = "other:unused-above:<self.0>:<n>", metadata = format!("{m}"))]
    async fn above(&self, n: u8, mut m: u8) -> Result<(), Error> {
        m += 1;
        held().await;
        assert_eq!(m, 3);
        Ok(())
    }

    #[distlock::distributed_lock(key = "other:unused-below:<self.0>:<n>")]
    #[tracing::instrument(skip(self))]
    async fn below(&self, n: u8) -> Result<(), Error> {
        held().await;
        Ok(())
    }

    #[tracing::instrument(skip_all, err)]
    #[distlock::distributed_lock(keys = ["other:unused-upper:<n>"])]
    #[distlock::distributed_lock(key = "other:unused-lower:<m>")]
    #[tracing::instrument(skip_all, ret)]
    async fn stacked(&self, n: u8, m: u8) -> Result<(), Error> {
        held().await;
        Ok(())
    }

    #[tracing::instrument(skip_all)]
    #[distlock::distributed_lock(key = "other:unused-unit:<n>", on_error = |_| ())]
    async fn unit(&self, n: u8) {
        held().await;
    }
}

#[test]
fn instrument_around_methods_of_async_trait() {
    returns("other:unused-above:3:1", Job(3).above(1, 2), &());
    returns("other:unused-below:3:1", Job(3).below(1), &());
    locked("other:unused-unit:1", Job(1).unit(1));
    returns("other:unused-upper:1", Job(1).stacked(1, 2), &());
}

#[distlock::distributed_lock(key = "other:must-use:<n>")]
#[deprecated(note = "a test of attributes that say something about the function")]
async fn deprecated(n: u8) -> Result<u8, Error> {
    held().await;
    Ok(n)
}

#[test]
fn attributes_about_the_function() {
    #[expect(deprecated)]
    let call = deprecated(1);
    returns("other:must-use:1", call, &1);
}
