//! `keys = [...]` holds several locks, of which equal ones are one.

use distlock::{Error, LockManager, current_for, distributed_lock, try_current_for, with_manager};

use crate::seen::block_on;

/// Returns the tokens of both accounts.
#[distributed_lock(keys = ["account:<from>", "account:<to>"], wait = "5s")]
async fn transfer(from: u64, to: u64) -> Result<(u64, u64), Error> {
    tokio::task::yield_now().await;
    let token = |account: u64| current_for(&format!("account:{account}")).fencing_token();
    Ok((token(from).get(), token(to).get()))
}

#[distributed_lock(keys = ["single:<id>"])]
async fn a_single_key(id: u64) -> Result<bool, Error> {
    Ok(try_current_for(&format!("single:{id}")).is_some())
}

#[distributed_lock(keys = ["text:<left>", "text:<right>"])]
async fn generic<L: std::fmt::Display, R: std::fmt::Display>(
    left: L,
    right: R,
) -> Result<(), Error> {
    assert!(try_current_for(&format!("text:{left}")).is_some());
    assert!(try_current_for(&format!("text:{right}")).is_some());
    Ok(())
}

#[test]
fn every_key_is_held() {
    let locks = LockManager::in_memory();
    block_on(with_manager(locks.clone(), async {
        let busy = locks.lock("account:2").acquire().await.unwrap();
        let (moved, released) = tokio::join!(transfer(1, 2), async {
            let queued = async || locks.inspect("account:2").await.unwrap().queue_length == 1;
            distlock_tests::eventually_async(std::time::Duration::from_secs(20), queued).await;
            busy.release().await
        });
        released.unwrap();
        let (first, second) = moved.unwrap();
        assert!(second > first, "account 2 was locked before");
        for key in ["account:1", "account:2"] {
            assert!(locks.inspect(key).await.unwrap().holders.is_empty());
        }
    }));
}

/// Two templates can give one key, and two calls can name the same keys in different orders.
#[test]
fn equal_keys_are_one_lock_and_orders_do_not_matter() {
    block_on(with_manager(LockManager::in_memory(), async {
        let (first, second) = transfer(7, 7).await.unwrap();
        assert_eq!(first, second);
        let (ab, ba) = tokio::join!(transfer(1, 2), transfer(2, 1));
        assert!(ab.is_ok() && ba.is_ok(), "{ab:?}, {ba:?}");
        assert!(a_single_key(1).await.unwrap());
        generic("a", 'b').await.unwrap();
    }));
}
