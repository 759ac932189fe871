//! Annotated functions nest as deep as bare wrappers around `async move` at the default
//! `recursion_limit`, which applies if the outermost future must be `Send`. A box allows more.

use std::future::Future;

use distlock::{Error, LockManager};

use crate::seen::block_on;

/// Defines functions that call each other, each under a lock, with attributes above and below that
/// of the lock. The last one calls `$end`.
macro_rules! chain {
    ([$($above:tt)*] [$($below:tt)*] $last:ident => $end:path) => {
        $($above)*
        #[distlock::distributed_lock(key = "nesting:<n>")]
        $($below)*
        pub(super) async fn $last(n: u64) -> Result<u64, distlock::Error> {
            assert_eq!(distlock::current().key(), format!("nesting:{n}"));
            $end(n).await
        }
    };
    ([$($above:tt)*] [$($below:tt)*] $first:ident $second:ident $($rest:tt)*) => {
        $($above)*
        #[distlock::distributed_lock(key = "nesting:<n>")]
        $($below)*
        pub(super) async fn $first(n: u64) -> Result<u64, distlock::Error> {
            $second(n + 1).await
        }
        chain!([$($above)*] [$($below)*] $second $($rest)*);
    };
}

mod fourteen {
    chain!([] [] f1 f2 f3 f4 f5 f6 f7 f8 f9 f10 f11 f12 f13 f14 => super::end);
}

mod eight_with_instrument_above {
    chain!([#[tracing::instrument]] [] f1 f2 f3 f4 f5 f6 f7 f8 => super::end);
}

mod eight_with_instrument_below {
    chain!([] [#[tracing::instrument]] f1 f2 f3 f4 f5 f6 f7 f8 => super::end);
}

mod fourteen_before_a_box {
    chain!([] [] f1 f2 f3 f4 f5 f6 f7 f8 f9 f10 f11 f12 f13 f14 => super::boxed);
}

async fn end(n: u64) -> Result<u64, Error> {
    tokio::task::yield_now().await;
    Ok(n)
}

/// The remedy that the documentation names.
async fn boxed(n: u64) -> Result<u64, Error> {
    let next: std::pin::Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(fourteen::f1(n + 1));
    next.await
}

fn spawned(call: impl Future<Output = Result<u64, Error>> + Send + 'static) -> u64 {
    block_on(async {
        let call = distlock::with_manager(LockManager::in_memory(), call);
        let depth = tokio::spawn(call).await.expect("no panic");
        depth.expect("free locks")
    })
}

#[test]
fn fourteen_deep() {
    assert_eq!(spawned(fourteen::f1(1)), 14);
}

#[test]
fn eight_deep_with_instrument() {
    assert_eq!(spawned(eight_with_instrument_above::f1(1)), 8);
    assert_eq!(spawned(eight_with_instrument_below::f1(1)), 8);
}

#[test]
fn deeper_behind_a_box() {
    assert_eq!(spawned(fourteen_before_a_box::f1(1)), 28);
}

fn assert_send_and_sync<T: Send + Sync>(_: &T) {}

#[test]
fn a_call_is_sent_and_shared_as_its_body_may_be() {
    assert_send_and_sync(&fourteen::f1(1));
}
