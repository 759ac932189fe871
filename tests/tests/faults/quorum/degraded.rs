//! The largest tolerated number of servers is down: no call runs into a timeout for them, and a
//! server that returns votes again.

use std::time::Instant;

use distlock::Error;
use distlock_tests::{equal, eventually_async, within};

use crate::cluster::callers::{Crowd, served_in_order};
use crate::quorum::stage::{Fault, LEASE, Stage, for_each};
use crate::quorum::{
    connect, three, until_clean, until_held_at, until_queued_at, until_queued_everywhere,
};
use crate::support::{
    HELD, LONG, acquire_later, give_back, grace, lock_key, ms, queue_key, until_renewed_twice,
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
        for _ in 0..30 {
            let guard = lock.acquire().await.unwrap();
            guard.release().await.unwrap();
            // A try-acquire gets its answer at once, too.
            let guard = lock.acquire().await.unwrap();
            let tried = stage.other.lock("k").lease(LEASE).try_acquire().await;
            assert!(!matches!(tried, Ok(Some(_))), "two holders at once");
            let waiting = acquire_later(&stage.other, "k", LEASE, LONG);
            until_queued_at(&stage.quorum, 0, "k", 1).await;
            guard.release().await.unwrap();
            give_back(waiting).await;
        }
        // The 120 commands would exceed this if each ran into its timeout of one second.
        let took = began.elapsed();
        assert!(took < LONG * 3, "{took:?}");
        stage.ends().await;
    })
    .await;
}

/// A returning server votes again by itself, as soon as it may. Then another server may fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_returned_server_votes_again_and_its_holds_are_repaired() {
    let faults = [Fault::Kill, Fault::Freeze, Fault::Flush, Fault::Cut];
    for_each(&faults, |fault| async move {
        let stage = Stage::with_leases_up_to(HELD, fault, &[PLACE]).await;
        let lock = stage.subject.lock("held").lease(HELD).metadata("a job");
        let guard = lock.acquire().await.unwrap();
        // The waiter gets the vote of the returned server first, and has to give it up.
        let waiting = acquire_later(&stage.other, "held", HELD, LONG);
        until_queued_everywhere(&stage.quorum, "held", 1).await;
        stage.strike();
        if fault == Fault::Freeze || fault == Fault::Cut {
            // The lease has expired there.
            tokio::time::sleep(HELD + grace(HELD) + ms(500)).await;
        }
        stage.stop();
        until_held_at(&stage.quorum, PLACE..PLACE + 1, &guard).await;
        let repaired = stage
            .quorum
            .server(PLACE)
            .client()
            .cmd(&["GET", "distlock:lock:{held}"]);
        let name = repaired.text().unwrap();
        assert!(name.ends_with("\u{1f}a job"), "without metadata: {name}");
        stage.quorum.server(0).kill();
        until_renewed_twice(&guard).await;
        let lock = stage.other.lock("k").lease(HELD).wait(LONG);
        within(LONG, lock.run(async |_| Ok::<_, Error>(())))
            .await
            .unwrap();
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
        // A fence shows that the clients are connected again and that the server votes.
        eventually_async(LONG, async || raw.exists("distlock:fence:{k0}")).await;
    }
    let _managers = crowd.end().await;
    until_clean(&stage.quorum).await;
}

/// The order also holds at a server that has lost the queue, once its vote is needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_keep_their_order() {
    let quorum = three();
    let [holder, waiter] = [connect(&quorum).await, connect(&quorum).await];
    let guard = holder.lock("k").lease(LEASE).acquire().await.unwrap();
    let mut waiting = Vec::new();
    // Tickets of one client rise; those of several clients are only as exact as their clocks.
    for place in 1..=4 {
        waiting.push(acquire_later(&waiter, "k", LEASE, LONG * 3));
        until_queued_everywhere(&quorum, "k", place).await;
    }
    quorum.server(1).restart();
    quorum.vote_at(1, "distlock");
    // The holder's repair and the waiters' requests reach the server in any order. Its vote takes a
    // waiter out of its queue.
    let mut raw = quorum.server(1).client();
    eventually_async(LONG, async || {
        let vote = raw.get(&lock_key("k"));
        let is_waiters = vote.is_some_and(|value| !value.starts_with("3 held "));
        let queued = raw.cmd(&["ZCARD", &queue_key("k")]).int();
        equal(queued + i64::from(is_waiters), 4)
    })
    .await;
    let last = guard.fencing_token();
    guard.release().await.unwrap();
    let (token, _) = within(LONG, give_back(waiting.remove(0))).await;
    assert!(token > last, "{token} after {last}");
    quorum.server(0).kill();
    served_in_order(token, waiting).await;
    until_clean(&quorum).await;
}
