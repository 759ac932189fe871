//! The loop of a candidate with the test kit, without a server.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Result, bail};
use distlock::Outage;
use distlock::testing::{InjectedLoss, TestLocks, assert_locked, assert_not_locked, holder};
use distlock_tests::within;
use tokio::sync::watch;

use crate::campaign::{campaign, until_true};

const KEY: &str = "leader:test";

/// Numbers of terms that a candidate has begun and ended.
#[derive(Default)]
struct Terms {
    begun: Cell<u32>,
    ended: Cell<u32>,
}

/// Runs a candidate until `stop_when` has completed, and returns how it ended.
async fn candidate(locks: &TestLocks, terms: &Terms, stop_when: impl Future) -> Result<()> {
    let lock = locks.manager().lock(KEY).lease(Duration::from_secs(2));
    let lock = lock.wait(Duration::from_secs(60));
    let (sender, stop) = watch::channel(false);
    let campaign = campaign(&lock, stop, async |_held, stop| {
        terms.begun.set(terms.begun.get() + 1);
        until_true(stop).await;
        terms.ended.set(terms.ended.get() + 1);
        Ok(())
    });
    let operator = async {
        stop_when.await;
        // Fails if the candidate has ended by itself.
        let _ = sender.send(true);
    };
    // In paused time, and longer than anything here takes.
    let both = within(Duration::from_secs(600), async {
        tokio::join!(campaign, operator)
    });
    both.await.0
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_loses_its_lock_leads_again() {
    for how in [
        InjectedLoss::Gone,
        InjectedLoss::Revoked,
        InjectedLoss::NotRenewed,
    ] {
        let locks = TestLocks::new();
        locks.on(KEY).once().lost_after(Duration::from_secs(5), how);
        let terms = Terms::default();
        let leads_again = async {
            while terms.begun.get() < 2 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        candidate(&locks, &terms, leads_again).await.unwrap();
        assert_eq!((terms.begun.get(), terms.ended.get()), (2, 1), "{how:?}");
        assert_not_locked!(locks, KEY);
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_retries_while_another_leads_or_the_store_is_unavailable() {
    let locks = TestLocks::new();
    locks.on(KEY).times(2).busy(holder("other"));
    let terms = Terms::default();
    candidate(&locks, &terms, locks.wait_until_held(KEY))
        .await
        .unwrap();
    locks.on(KEY).once().unavailable(Outage::Unreachable);
    candidate(&locks, &terms, locks.wait_until_held(KEY))
        .await
        .unwrap();
    assert_eq!((terms.begun.get(), terms.ended.get()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn an_error_that_a_retry_cannot_fix_ends_the_loop() {
    let locks = TestLocks::new();
    locks.on(KEY).unavailable(Outage::Denied);
    let terms = Terms::default();
    let error = candidate(&locks, &terms, std::future::ready(())).await;
    assert!(error.unwrap_err().to_string().contains("not permitted"));
    assert_eq!(terms.begun.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_work_pauses_before_it_leads_again() {
    let locks = TestLocks::new();
    let begun = Cell::new(0);
    let (sender, stop) = watch::channel(false);
    let lock = locks.manager().lock(KEY);
    let campaign = campaign(&lock, stop, async |_held, _stop| {
        begun.set(begun.get() + 1);
        assert!(begun.get() < 100, "it does not pause");
        bail!("the journal is away")
    });
    let other = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        // Another candidate acquires the lock in the pause.
        let turn = locks.manager().lock(KEY).acquire().await.unwrap();
        sender.send(true).unwrap();
        turn.release().await.unwrap();
    };
    let (ended, ()) = tokio::join!(campaign, other);
    ended.unwrap();
    assert!((5..=12).contains(&begun.get()), "{begun:?}");
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_is_stopped_while_it_waits_leaves_the_queue_at_once() {
    let locks = TestLocks::new();
    let leader = locks.manager().lock(KEY).acquire().await.unwrap();
    let waiters = async || locks.manager().inspect(KEY).await.unwrap().queue_length;
    let is_queued = async {
        while waiters().await == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let terms = Terms::default();
    let began = tokio::time::Instant::now();
    candidate(&locks, &terms, is_queued).await.unwrap();
    // In paused time: before the end of its wait, which is a minute.
    assert!(began.elapsed() < Duration::from_secs(10));
    distlock_tests::eventually_async(Duration::from_secs(60), async || waiters().await == 0).await;
    assert_locked!(locks, KEY);
    leader.release().await.unwrap();
}
