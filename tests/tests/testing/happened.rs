//! The acquisitions that the test kit has recorded.

use std::panic::{AssertUnwindSafe, catch_unwind};

use distlock::testing::{TestLocks, assert_locked, assert_not_locked, holder};

use crate::service::{Inventory, REDUCE, ms, secs};

#[tokio::test(start_paused = true)]
async fn acquisitions_are_counted_with_their_tokens() {
    let shop = Inventory::new();
    let mut tokens = Vec::new();
    for item in [7, 8, 7] {
        tokens.push(shop.reduce(item, ms(1)).await.unwrap());
    }
    // A rejected call has acquired nothing.
    shop.locks.on("inventory:7").once().busy(holder("worker-2"));
    shop.try_reduce(7).await.unwrap_err();

    let known = shop.locks.acquisitions();
    let keys: Vec<_> = known.iter().map(|known| known.key.as_str()).collect();
    assert_eq!(keys, ["inventory:7", "inventory:8", "inventory:7"]);
    assert!(
        known
            .iter()
            .all(|known| known.label.as_deref() == Some(REDUCE))
    );
    assert!(
        known
            .iter()
            .map(|known| known.fencing_token)
            .eq(tokens.iter().copied().map(Some))
    );
    assert!(tokens[2] > tokens[0]);
    assert_eq!(shop.locks.acquire_count("inventory:7"), 2);
    assert_eq!(
        shop.locks.acquire_count("{inventory:8}"),
        1,
        "the same lock"
    );
    assert_eq!(shop.locks.acquire_count("inventory:9"), 0);
}

/// A nested call of the same call tree acquires nothing.
#[tokio::test(start_paused = true)]
async fn re_entry_counts_as_no_acquisition() {
    let shop = Inventory::new();
    shop.reduce_twice(7).await.unwrap();
    assert_eq!(
        (shop.done(), shop.locks.acquire_count("inventory:7")),
        (2, 1)
    );
    assert_not_locked!(shop.locks, "inventory:7");
}

#[tokio::test(start_paused = true)]
async fn held_locks_are_reported_while_they_are_held() {
    let shop = Inventory::new();
    let check = async {
        shop.locks.wait_until_held("inventory:7").await;
        shop.locks.wait_until_held("inventory:8").await;
        assert_locked!(shop.locks, "inventory:7");
        assert_locked!(&shop.locks, String::from("{inventory:8}"), "in braces too");
        assert_not_locked!(shop.locks, "inventory:9");
        assert_eq!(shop.locks.held_keys(), ["inventory:7", "inventory:8"]);
        tokio::time::sleep(secs(2)).await;
        assert_eq!(shop.locks.held_keys(), ["inventory:8"]);
    };
    let (seven, eight, ()) = tokio::join!(shop.reduce(7, secs(1)), shop.reduce(8, secs(30)), check);
    seven.unwrap();
    eight.unwrap();
    assert!(shop.locks.held_keys().is_empty());
}

/// A runtime that did not run has not noticed that the lease has expired.
#[tokio::test]
async fn a_hold_beyond_its_safe_deadline_is_not_held() {
    let locks = TestLocks::new();
    let lock = locks.manager().lock("report").lease(ms(50));
    let guard = lock.acquire().await.unwrap();
    std::thread::sleep(ms(60));
    assert_not_locked!(locks, "report");
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_failed_assertion_lists_the_held_locks() {
    let locks = TestLocks::new();
    let text = |assertion: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(assertion)).expect_err("it is not so");
        *panic.downcast::<String>().expect("a message")
    };
    assert_eq!(
        text(&|| assert_locked!(locks, "report")),
        "lock `report` is not held (nothing is held; it was never acquired)"
    );
    let manager = locks.manager();
    manager
        .lock("report")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let _b = manager.lock("b").acquire().await.unwrap();
    let _a = manager.lock("a").acquire().await.unwrap();
    assert_eq!(
        text(&|| assert_locked!(locks, "report", "while {} runs", "it")),
        "lock `report` is not held: while it runs (held: `a`, `b`; it was acquired once)"
    );
    assert_eq!(
        text(&|| assert_not_locked!(locks, "a", "in the end")),
        "lock `a` is held, but should not be: in the end (held: `a`, `b`; it was acquired once)"
    );
}
