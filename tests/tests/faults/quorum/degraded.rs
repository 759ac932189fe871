//! The largest tolerated number of servers is down: no call runs into a timeout for them, and a
//! server that returns grants again.

use std::time::Instant;

use distlock_tests::{eventually_async, within};

use crate::cluster::callers::Crowd;
use crate::quorum::restart::{field, grants_from, now_at};
use crate::quorum::stage::{Fault, LEASE, Stage, for_each};
use crate::quorum::{until_clean, until_held_at};
use crate::support::{
    HELD, LONG, acquire_later, give_back, grace, lock_key, ms, until_renewed_twice,
};

/// The affected server.
const PLACE: usize = 1;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_first_timeout_no_call_waits_for_the_dead_server() {
    for_each(&Fault::ALL, |fault| async move {
        let stage = Stage::new(fault, &[PLACE]).await;
        stage.strike();
        stage.assert_both_acquire().await;
        let began = Instant::now();
        let lock = stage.subject.lock("k").lease(LEASE).wait(LONG);
        for _ in 0..40 {
            let guard = lock.acquire().await.unwrap();
            let tried = stage.other.lock("k").lease(LEASE).try_acquire().await;
            assert!(!matches!(tried, Ok(Some(_))), "two holders at once");
            let waiting = acquire_later(&stage.other, "k", LEASE, LONG);
            guard.release().await.unwrap();
            give_back(waiting).await;
        }
        // The 40 tries alone would exceed this if each ran into its timeout of one second.
        let took = began.elapsed();
        assert!(took < LONG, "{took:?}");
        stage.ends().await;
    })
    .await;
}

/// A returning server grants again by itself, as soon as it may: if it has lost its data, once the
/// longest lease has expired. Then another server may fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_returned_server_grants_again_and_its_holds_are_repaired() {
    let faults = [Fault::Kill, Fault::Freeze, Fault::Flush, Fault::Cut];
    for_each(&faults, |fault| async move {
        let stage = Stage::with_leases_up_to(HELD, fault, &[PLACE]).await;
        let lock = stage.subject.lock("held").lease(HELD).metadata("a job");
        let guard = lock.acquire().await.unwrap();
        // The waiter takes the lock of the returned server first, and has to release it.
        let waiting = acquire_later(&stage.other, "held", HELD, LONG);
        let struck = now_at(&mut stage.quorum.server(PLACE).client());
        stage.strike();
        if fault == Fault::Freeze || fault == Fault::Cut {
            // The lease has expired there.
            tokio::time::sleep(HELD + grace(HELD) + ms(500)).await;
        }
        stage.stop();
        until_held_at(&stage.quorum, PLACE..PLACE + 1, &guard).await;
        let mut raw = stage.quorum.server(PLACE).client();
        let value = raw.get(&lock_key("held")).unwrap();
        assert!(value.ends_with("\u{1f}a job"), "no metadata: {value}");
        if matches!(fault, Fault::Kill | Fault::Flush) {
            let (from, since) = (grants_from(&mut raw), field(&value, 4).parse().unwrap());
            let quarantine = u64::try_from(HELD.as_micros()).unwrap();
            assert!(
                struck + quarantine <= from && from <= since,
                "{struck} {from} {value}"
            );
        }
        stage.quorum.server(0).kill();
        until_renewed_twice(&guard).await;
        give_back(acquire_later(&stage.other, "k", HELD, LONG)).await;
        guard.release().await.unwrap();
        within(LONG, give_back(waiting)).await;
        until_clean(&stage.quorum).await;
    })
    .await;
}

/// A returned server gets the holds of that moment, but none that was released meanwhile, because
/// no client would release it there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repaired_holds_are_released_on_all_servers() {
    let stage = Stage::new(Fault::RestartEmpty, &[PLACE]).await;
    let keys: Vec<_> = (0..12).map(|number| format!("k{number}")).collect();
    let crowd = Crowd::start(&stage.quorum.url(), &keys, 1, LEASE, Result::unwrap).await;
    for _ in 0..40 {
        stage.strike();
        stage.heal();
        let mut raw = stage.quorum.server(PLACE).client();
        // A fence shows that the clients are connected again and that the server grants.
        eventually_async(LONG, async || raw.exists("distlock:fence:{k0}")).await;
    }
    let _managers = crowd.end().await;
    until_clean(&stage.quorum).await;
}
