//! The loop of a candidate under the test kit: what it does when its lock is busy, lost or away, and when it is told to stop.

use std::cell::Cell;
use std::future::pending;
use std::time::Duration;

use anyhow::{Result, bail};
use distlock::testing::{Loss, TestLocks, assert_locked, assert_not_locked, holder};
use distlock::{Held, Lock, Outage};
use distlock_tests::within;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::campaign::{campaign, until_true};

const KEY: &str = "leader:test";

/// In paused time: longer than anything here takes.
const LONG: Duration = Duration::from_secs(600);

fn lock(locks: &TestLocks) -> Lock {
    let lock = locks.manager().lock(KEY);
    lock.lease(Duration::from_secs(2))
        .wait(Duration::from_secs(60))
}

/// Leads until it is told to stop, and says how often it began and whether it ended by itself.
#[derive(Default)]
struct Terms {
    began: Cell<u32>,
    ended: Cell<u32>,
}

impl Terms {
    async fn lead(&self, _held: Held, stop: watch::Receiver<bool>) -> Result<()> {
        self.began.set(self.began.get() + 1);
        until_true(stop).await;
        self.ended.set(self.ended.get() + 1);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn when_it_loses_its_lock_its_work_is_dropped_and_it_leads_again() {
    for how in [Loss::Gone, Loss::Revoked, Loss::NotRenewed] {
        let locks = TestLocks::new();
        locks.on(KEY).once().lost_after(Duration::from_secs(5), how);
        let terms = Terms::default();
        let (tell, stop) = watch::channel(false);
        let lock = lock(&locks);
        let candidate = campaign(&lock, stop, async |held, stop| terms.lead(held, stop).await);
        let operator = async {
            locks.until_held(KEY).await;
            while locks.acquired(KEY) < 2 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            tell.send(true).unwrap();
        };
        let (ended, ()) = within(LONG, async { tokio::join!(candidate, operator) }).await;
        ended.unwrap();
        assert_eq!((terms.began.get(), terms.ended.get()), (2, 1), "{how:?}");
        assert_not_locked!(locks, KEY);
    }
}

#[tokio::test(start_paused = true)]
async fn while_another_leads_or_the_store_is_away_it_tries_again() {
    let locks = TestLocks::new();
    locks.on(KEY).times(2).busy(holder("other"));
    let terms = Terms::default();
    let (tell, stop) = watch::channel(false);
    let lock = lock(&locks);
    let began = Instant::now();
    let candidate = campaign(&lock, stop, async |held, stop| terms.lead(held, stop).await);
    let operator = async {
        locks.until_held(KEY).await;
        // Each wait was a whole one, and after it the candidate is back in line at once.
        let waited = began.elapsed();
        assert!(waited >= Duration::from_secs(120), "{waited:?}");
        assert!(waited < Duration::from_millis(120_500), "{waited:?}");
        tell.send(true).unwrap();
    };
    let (ended, ()) = within(LONG, async { tokio::join!(candidate, operator) }).await;
    ended.unwrap();
    assert_eq!(terms.began.get(), 1);

    locks.on(KEY).once().unavailable(Outage::Unreachable);
    let (tell, stop) = watch::channel(false);
    let candidate = campaign(&lock, stop, async |held, stop| terms.lead(held, stop).await);
    let operator = async {
        locks.until_held(KEY).await;
        tell.send(true).unwrap();
    };
    let (ended, ()) = within(LONG, async { tokio::join!(candidate, operator) }).await;
    ended.unwrap();
    assert_eq!(terms.began.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_trying_again_does_not_mend_ends_it() {
    let locks = TestLocks::new();
    locks.on(KEY).unavailable(Outage::Denied);
    let terms = Terms::default();
    let (_tell, stop) = watch::channel(false);
    let lock = lock(&locks);
    let candidate = campaign(&lock, stop, async |held, stop| terms.lead(held, stop).await);
    let error = within(LONG, candidate).await.unwrap_err().to_string();
    assert!(error.contains("not permitted"), "{error}");
    assert_eq!(terms.began.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_work_gives_others_a_turn_and_pauses_before_its_next() {
    let locks = TestLocks::new();
    let began = Cell::new(0);
    let (tell, stop) = watch::channel(false);
    let lock = lock(&locks);
    let candidate = campaign(&lock, stop, async |_held, _stop| {
        began.set(began.get() + 1);
        assert!(began.get() < 100, "it does not pause");
        bail!("the journal is away")
    });
    let other = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let turn = locks.manager().lock(KEY).acquire().await.unwrap();
        tell.send(true).unwrap();
        turn.release().await.unwrap();
    };
    let (ended, ()) = within(LONG, async { tokio::join!(candidate, other) }).await;
    ended.unwrap();
    // About once a second.
    assert!((5..=12).contains(&began.get()), "{began:?}");
}

#[tokio::test(start_paused = true)]
async fn told_to_stop_while_it_waits_it_leaves_the_line_at_once() {
    let locks = TestLocks::new();
    let leader = locks.manager().lock(KEY).acquire().await.unwrap();
    let (tell, stop) = watch::channel(false);
    let lock = lock(&locks);
    let candidate = campaign(&lock, stop, async |_held, _stop| pending().await);
    let waiting = async || locks.manager().inspect(KEY).await.unwrap().waiters;
    let operator = async {
        while waiting().await == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tell.send(true).unwrap();
        Instant::now()
    };
    let (ended, told) = within(LONG, async { tokio::join!(candidate, operator) }).await;
    ended.unwrap();
    // In paused time: not when its wait was over.
    assert!(
        told.elapsed() < Duration::from_secs(1),
        "{:?}",
        told.elapsed()
    );
    distlock_tests::eventually_async(LONG, async || waiting().await == 0).await;
    assert_locked!(locks, KEY);
    leader.release().await.unwrap();
}
