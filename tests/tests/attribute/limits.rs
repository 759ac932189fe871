//! What the macro checks when it compiles, the runtime checks when it is called: both have the same
//! limits.

use std::time::Duration;

use distlock::{Error, Lock, LockManager, MultiLock};

use crate::seen::block_on;

#[path = "../../../distlock-macros/src/limits.rs"]
mod of_the_macro;

use of_the_macro as limits;

/// Returns true if a call with these options runs.
async fn runs(lock: Lock) -> bool {
    let ran = lock.run(async |_| Ok::<_, Error>(())).await;
    assert!(
        matches!(
            ran,
            Ok(())
                | Err(Error::Config { .. } | Error::InvalidValue { .. } | Error::InvalidKey { .. })
        ),
        "{ran:?}"
    );
    ran.is_ok()
}

#[test]
fn durations_have_the_limits_of_the_runtime() {
    type Set = fn(Lock, Duration) -> Lock;
    let cases: [(&str, limits::Range, Set); 6] = [
        ("lease", limits::LEASE, |lock, time| lock.lease(time)),
        ("wait", limits::WAIT, |lock, time| lock.wait(time)),
        ("max_hold", limits::MAX_HOLD, |lock, time| {
            lock.max_hold(time)
        }),
        ("min_hold", limits::MIN_HOLD, |lock, time| {
            lock.min_hold(time)
        }),
        ("once_per", limits::RECORD, |lock, time| lock.once_per(time)),
        ("record_ttl", limits::RECORD, |lock, time| {
            lock.once_for("value").record_ttl(time)
        }),
    ];
    for (name, range, set) in cases {
        block_on(async {
            let locks = LockManager::connect("memory:").await.expect("a store");
            let runs_for = |millis: u64| {
                let lock = locks.lock(format!("limits:{name}:{millis}"));
                runs(set(
                    lock.wait(Duration::ZERO),
                    Duration::from_millis(millis),
                ))
            };
            for millis in [range.min, range.max] {
                assert!(runs_for(millis).await, "{name}: {millis}");
            }
            // A zero from an expression means that there is no `min_hold`.
            if range.min > 0 && name != "min_hold" {
                assert!(!runs_for(range.min - 1).await, "{name}");
            }
            if range.max < u64::MAX {
                assert!(!runs_for(range.max + 1).await, "{name}");
            }
        });
    }
}

#[test]
fn sizes_have_the_limits_of_the_runtime() {
    block_on(async {
        let locks = LockManager::connect("memory:").await.expect("a store");
        let several = |count: usize| locks.lock_all((0..count).map(|n| format!("limits:{n}")));
        for (beyond, is_legal) in [(0, true), (1, false)] {
            let key = "k".repeat(limits::MAX_KEY + beyond);
            assert_eq!(runs(locks.lock(key)).await, is_legal, "key");
            let value = "v".repeat(limits::MAX_ONCE_VALUE + beyond);
            let once = locks.lock(format!("limits:once:{beyond}")).once_for(value);
            assert_eq!(runs(once).await, is_legal, "once_for");
            let several: MultiLock = several(limits::MAX_KEYS + beyond);
            assert_eq!(several.acquire().await.is_ok(), is_legal, "keys");
            let permits = limits::MAX_PERMITS + u32::try_from(beyond).expect("0 or 1");
            let semaphore = locks.semaphore("limits:permits", permits);
            assert_eq!(semaphore.acquire().await.is_ok(), is_legal, "permits");
        }
        let hidden = (char::MIN..=char::MAX).filter(|c| limits::is_hidden(*c));
        let text: String = hidden
            .chain("m".repeat(limits::MAX_METADATA).chars())
            .collect();
        let lock = locks.lock("limits:metadata").metadata(text);
        let guard = lock.acquire().await.expect("a hold");
        let state = locks.inspect("limits:metadata").await.expect("a state");
        let metadata = state.holders[0].metadata.clone().unwrap_or_default();
        assert_eq!(metadata.len(), limits::MAX_METADATA);
        assert!(!metadata.contains(limits::is_hidden), "{metadata:?}");
        guard.release().await.expect("a hold");
    });
}
