//! A key has one kind at a time, and a call tree re-enters a hold only as the kind that it has.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{
    Error, HeldLock, LockGuard, LockKind, LockManager, MultiLockGuard, RwLockReadGuard,
    RwLockWriteGuard, SemaphorePermit,
};
use distlock_tests::{eventually_async, within};

use crate::fixture::{Fixture, HELD, PATIENCE, SOON, ms};

/// What a call requests under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mutex,
    Read,
    Write,
    /// The number of permits, and how many of them the call takes.
    Permits(u32, u32),
}

const TWO_OF_THREE: Kind = Kind::Permits(3, 2);
const ONE_OF_THREE: Kind = Kind::Permits(3, 1);
const ONE_OF_TWO: Kind = Kind::Permits(2, 1);
const ALL: [Kind; 6] = [
    Kind::Mutex,
    Kind::Read,
    Kind::Write,
    TWO_OF_THREE,
    ONE_OF_THREE,
    ONE_OF_TWO,
];

impl Kind {
    fn lock_kind(self) -> LockKind {
        match self {
            Kind::Mutex => LockKind::Mutex,
            Kind::Read | Kind::Write => LockKind::ReadWrite,
            Kind::Permits(permits, _) => LockKind::Semaphore { permits },
        }
    }

    /// Returns true for the same kind of lock, whatever the numbers of permits are.
    fn is_same(self, other: Kind) -> bool {
        let kind = |kind: Kind| std::mem::discriminant(&kind.lock_kind());
        kind(self) == kind(other)
    }

    async fn acquire(self, manager: &LockManager, key: &str) -> Result<Guard, Error> {
        match self {
            Kind::Mutex => {
                let lock = manager.lock(key).lease(HELD).wait(PATIENCE);
                lock.acquire().await.map(Guard::Mutex)
            }
            Kind::Read => {
                let lock = manager.rw_lock(key).lease(HELD).wait(PATIENCE);
                lock.read().await.map(Guard::Read)
            }
            Kind::Write => {
                let lock = manager.rw_lock(key).lease(HELD).wait(PATIENCE);
                lock.write().await.map(Guard::Write)
            }
            Kind::Permits(permits, weight) => {
                let semaphore = manager.semaphore(key, permits).lease(HELD).wait(PATIENCE);
                semaphore.acquire_many(weight).await.map(Guard::Permits)
            }
        }
    }

    async fn try_acquire(self, manager: &LockManager, key: &str) -> Result<Option<Guard>, Error> {
        match self {
            Kind::Mutex => Ok(manager.lock(key).try_acquire().await?.map(Guard::Mutex)),
            Kind::Read => Ok(manager.rw_lock(key).try_read().await?.map(Guard::Read)),
            Kind::Write => Ok(manager.rw_lock(key).try_write().await?.map(Guard::Write)),
            Kind::Permits(permits, weight) => {
                let permit = manager
                    .semaphore(key, permits)
                    .try_acquire_many(weight)
                    .await?;
                Ok(permit.map(Guard::Permits))
            }
        }
    }
}

#[derive(Debug)]
enum Guard {
    Mutex(LockGuard),
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
    Permits(SemaphorePermit),
    Several(MultiLockGuard),
}

/// Evaluates an expression with the guard of any kind.
macro_rules! of_guard {
    ($self:expr, $guard:ident => $expression:expr) => {
        match $self {
            Guard::Mutex($guard) => $expression,
            Guard::Read($guard) => $expression,
            Guard::Write($guard) => $expression,
            Guard::Permits($guard) => $expression,
            Guard::Several($guard) => $expression,
        }
    };
}

impl Guard {
    async fn scope<F: Future>(&self, future: F) -> F::Output {
        of_guard!(self, guard => guard.scope(future).await)
    }

    fn remaining(&self) -> Duration {
        of_guard!(self, guard => guard.remaining())
    }

    /// Downgrades a write. Every other guard is returned unchanged.
    async fn downgrade(self) -> Guard {
        match self {
            Guard::Write(guard) => Guard::Read(guard.downgrade().await.unwrap()),
            other => other,
        }
    }

    fn token(&self) -> Option<distlock::FencingToken> {
        match self {
            Guard::Mutex(guard) => Some(guard.fencing_token()),
            Guard::Read(guard) => Some(guard.fencing_token()),
            Guard::Write(guard) => Some(guard.fencing_token()),
            Guard::Permits(_) | Guard::Several(_) => None,
        }
    }

    async fn release(self) {
        of_guard!(self, guard => guard.release().await).unwrap();
    }
}

/// What a nested call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nested {
    Reenters,
    Acquires,
    WrongKind,
    UpgradeDeadlock,
    Config,
}

impl Nested {
    fn of(outer: Kind, inner: Kind) -> Self {
        match (outer, inner) {
            (Kind::Read, Kind::Write) => Nested::UpgradeDeadlock,
            _ if !outer.is_same(inner) => Nested::WrongKind,
            (Kind::Permits(_, weight), Kind::Permits(permits, more)) => {
                if weight + more > permits {
                    Nested::Config
                } else {
                    Nested::Acquires
                }
            }
            _ => Nested::Reenters,
        }
    }

    fn observed(outer: &Guard, result: &Result<Guard, Error>) -> Self {
        match result {
            Ok(inner) if inner.token().is_some() && inner.token() == outer.token() => {
                Nested::Reenters
            }
            Ok(_) => Nested::Acquires,
            Err(Error::WrongKind { .. }) => Nested::WrongKind,
            Err(Error::UpgradeDeadlock { .. }) => Nested::UpgradeDeadlock,
            Err(Error::Config { .. }) => Nested::Config,
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Checks that a call gets a `WrongKind` that describes the other hold.
async fn assert_wrong_kind(store: &Fixture, key: &str, existing: Kind, requested: Kind) {
    let manager = store.manager().await;
    let context = format!("{requested:?} while it is {existing:?}");
    let results = [
        requested.try_acquire(&manager, key).await.map(drop),
        within(PATIENCE / 2, requested.acquire(&manager, key))
            .await
            .map(drop),
    ];
    for result in results {
        match result.unwrap_err() {
            Error::WrongKind {
                key: named,
                requested: as_requested,
                existing: as_existing,
                holders,
                ..
            } => {
                assert_eq!(named, key, "{context}");
                assert_eq!(as_requested, requested.lock_kind(), "{context}");
                assert_eq!(as_existing, existing.lock_kind(), "{context}");
                assert_eq!(holders.len(), 1, "{context}");
                assert_eq!(holders[0].client, "existing", "{context}");
            }
            other => panic!("{context}: {other:?}"),
        }
    }
}

for_each_queueing_store! {
    async fn a_key_in_use_as_another_kind_is_refused(store) {
        let manager = store.named("existing").await;
        for existing in ALL {
            // An idle key takes any kind, so all of them may use the same one.
            let guard = existing.acquire(&manager, "k").await.unwrap();
            for requested in ALL {
                if !requested.is_same(existing) {
                    assert_wrong_kind(store, "k", existing, requested).await;
                }
            }
            guard.release().await;
            store.until_free("k", SOON).await;
        }
    }

    /// Readers that hold together share a token, which is above that of a write before them.
    async fn what_is_held_at_once_fits(store) {
        let rounds = store.hand_offs(10, 2);
        for (capacity, calls) in [
            (3, [(ONE_OF_THREE, 1), (TWO_OF_THREE, 2)]),
            (1_000, [(Kind::Read, 1), (Kind::Write, 1_000)]),
        ] {
            let inside = Arc::new(Mutex::new((0, None)));
            let mut tasks = Vec::new();
            for manager in store.managers(4).await {
                for (kind, weight) in calls {
                    let (manager, inside) = (manager.clone(), inside.clone());
                    tasks.push(tokio::spawn(async move {
                        for round in 0..rounds {
                            let guard = kind.acquire(&manager, "k").await.unwrap();
                            let (before, last) = {
                                let mut inside = inside.lock().unwrap();
                                let (used, token) = *inside;
                                *inside = (used + weight, guard.token());
                                (used, token)
                            };
                            assert!(before + weight <= capacity, "{kind:?} next to {before} of {capacity}");
                            let is_in_order = match (kind, before) {
                                (Kind::Write, _) => guard.token() > last,
                                (_, 0) => guard.token() >= last,
                                _ => guard.token() == last,
                            };
                            assert!(is_in_order, "{kind:?} has {:?} after {last:?}", guard.token());
                            tokio::task::yield_now().await;
                            inside.lock().unwrap().0 -= weight;
                            if round % 2 == 0 {
                                drop(guard);
                            } else {
                                guard.release().await;
                            }
                        }
                    }));
                }
            }
            for task in tasks {
                within(PATIENCE * 3, task).await.unwrap();
            }
            store.until_free("k", SOON).await;
        }
    }

    async fn nested_calls_re_enter_acquire_or_are_refused(store) {
        let manager = store.manager().await;
        for outer_kind in ALL {
            let outer = outer_kind.acquire(&manager, "k").await.unwrap();
            for inner_kind in ALL {
                let context = format!("{inner_kind:?} in {outer_kind:?}");
                let expected = Nested::of(outer_kind, inner_kind);
                let inner = outer.scope(inner_kind.acquire(&manager, "k"));
                let inner = within(PATIENCE / 2, inner).await;
                assert_eq!(Nested::observed(&outer, &inner), expected, "{context}");
                if let Ok(inner) = inner {
                    inner.release().await;
                }
                let tried = outer.scope(inner_kind.try_acquire(&manager, "k")).await;
                let tried = tried.map(|guard| guard.unwrap_or_else(|| panic!("{context}: busy")));
                assert_eq!(Nested::observed(&outer, &tried), expected, "try {context}");
                if let Ok(inner) = tried {
                    inner.release().await;
                }
            }
            assert_eq!(store.inspect("k").await.holders.len(), 1, "{outer_kind:?}");
            outer.release().await;
        }
        store.until_free("k", SOON).await;
    }

    /// Nothing stays acquired, not even the keys before it.
    async fn several_keys_meet_only_mutexes(store) {
        let (manager, other) = (store.manager().await, store.manager().await);
        for kind in [Kind::Read, ONE_OF_THREE] {
            let outer = kind.acquire(&manager, "b").await.unwrap();
            let both = |manager: &LockManager| manager.lock_all(["a", "b"]).wait(PATIENCE);
            let nested = [
                outer.scope(both(&manager).acquire()).await.map(drop),
                outer.scope(both(&manager).try_acquire()).await.map(drop),
            ];
            let waited = within(PATIENCE / 2, both(&other).acquire()).await.map(drop);
            store.until_free("a", SOON).await;
            let tried = both(&other).try_acquire().await.map(drop);
            store.until_free("a", SOON).await;
            for result in nested.into_iter().chain([waited, tried]) {
                match result.unwrap_err() {
                    Error::WrongKind { key, requested, existing, .. } => {
                        let expected = ("b", LockKind::Mutex, kind.lock_kind());
                        assert_eq!((&*key, requested, existing), expected);
                    }
                    other => panic!("{other:?}"),
                }
            }
            outer.release().await;
        }
    }

    /// Only keys that `lock_all` could take together are proposed.
    async fn busy_errors_name_only_mutexes_of_the_call_tree(store) {
        let manager = store.manager().await;
        let busy = store.hold("busy").await;
        let outer = [ONE_OF_THREE, Kind::Read, Kind::Mutex];
        for (place, kind) in outer.into_iter().enumerate() {
            let key = format!("outer{place}");
            let guard = kind.acquire(&manager, &key).await.unwrap();
            let lock = manager.lock("busy").wait(ms(200));
            match guard.scope(lock.acquire()).await.unwrap_err() {
                Error::Busy { held_keys, .. } => {
                    let expected: &[String] = if kind == Kind::Mutex { &[key] } else { &[] };
                    assert_eq!(held_keys, expected, "{kind:?}");
                }
                other => panic!("{other:?}"),
            }
            guard.release().await;
        }
        busy.release().await.unwrap();
    }

    /// A permit has no token, so `current` must not return it, nor the lock of an outer body.
    async fn current_returns_locks_and_current_permit_returns_permits(store) {
        let manager = store.manager().await;
        let guards = [
            Kind::Write.acquire(&manager, "rw").await.unwrap(),
            TWO_OF_THREE.acquire(&manager, "permits").await.unwrap(),
        ];
        let [write, permits] = &guards;
        let look = async |current: Option<&str>| {
            assert_eq!(distlock::try_current().as_ref().map(HeldLock::key), current);
            assert_eq!(distlock::current_for("rw").key(), "rw");
            assert!(distlock::try_current_for("permits").is_none());
            let permit = distlock::current_permit();
            assert_eq!((permit.key(), permit.weight()), ("permits", 2));
        };
        write.scope(permits.scope(look(None))).await;
        permits.scope(write.scope(look(Some("rw")))).await;
        permits.scope(async { assert!(distlock::try_current().is_none()) }).await;
        write.scope(async { assert!(distlock::try_current_permit().is_none()) }).await;
        for guard in guards {
            guard.release().await;
        }
    }
}

for_redis! {
    /// The holder is gone, so the other kind's call finds a waiter, or what was granted to it.
    async fn a_key_that_is_waited_for_keeps_its_kind(fixture) {
        let manager = fixture.manager().await;
        for (kind, other) in [(Kind::Mutex, Kind::Read), (Kind::Write, Kind::Mutex), (TWO_OF_THREE, Kind::Read)] {
            let gone = kind.acquire(&manager, "k").await.unwrap();
            let waiter = fixture.named("existing").await;
            let waiter = tokio::spawn(async move { kind.acquire(&waiter, "k").await });
            fixture.until_waiting("k", 1).await;
            assert_eq!(fixture.raw().cmd(&["DEL", &fixture.name("lock", "k")]).int(), 1);
            match other.try_acquire(&manager, "k").await.unwrap_err() {
                Error::WrongKind { existing, .. } => assert_eq!(existing, kind.lock_kind()),
                other => panic!("{other:?}"),
            }
            let served = within(PATIENCE, waiter).await.unwrap().unwrap();
            served.release().await;
            drop(gone);
            fixture.until_free("k", SOON).await;
        }
    }
}

/// A hold, and the call that waits for it.
const HAND_OFFS: [[Option<Kind>; 2]; 6] = [
    [Some(Kind::Mutex); 2],
    [Some(Kind::Read), Some(Kind::Write)],
    // The downgrade grants the read. In the other rows, the release does.
    [Some(Kind::Write), Some(Kind::Read)],
    [Some(Kind::Write); 2],
    [Some(TWO_OF_THREE); 2],
    // Several keys, of which the other call waits for the first.
    [None; 2],
];

/// Acquires as a kind, or several keys.
async fn acquire(kind: Option<Kind>, manager: &LockManager, key: &str) -> Guard {
    match kind {
        Some(kind) => kind.acquire(manager, key).await.unwrap(),
        None => {
            let lock = manager.lock_all([key, &format!("z{key}")]);
            let guard = lock.lease(HELD).wait(PATIENCE).acquire().await;
            Guard::Several(guard.unwrap())
        }
    }
}

/// The commands of every kind, over transports that the other tests of these kinds do not use.
async fn each_kind_is_renewed_and_handed_off(store: &Fixture) {
    hand_offs(store, [store.manager().await, store.manager().await]).await;
}

/// The same with acknowledgments. The server does not know the scripts of these kinds yet.
async fn each_kind_is_acknowledged_by_a_replica(store: &Fixture) {
    let manager = async || store.connect(store.builder().min_replicas(1)).await;
    hand_offs(store, [manager().await, manager().await]).await;
}

async fn hand_offs(store: &Fixture, [first, second]: [LockManager; 2]) {
    let first = &first;
    let hand_off = |(place, [held, waiting]): (usize, [Option<Kind>; 2])| {
        let (key, second) = (format!("k{place}"), second.clone());
        async move {
            let guard = acquire(held, first, &key).await;
            let token = guard.token();
            let waiter = tokio::spawn({
                let key = key.clone();
                async move { acquire(waiting, &second, &key).await }
            });
            store.until_waiting(&key, 1).await;
            let mut last = guard.remaining();
            eventually_async(PATIENCE, async || {
                let before = std::mem::replace(&mut last, guard.remaining());
                assert!(last > Duration::ZERO, "{held:?}: lost");
                last > before
            })
            .await;
            assert!(!waiter.is_finished(), "{held:?} and {waiting:?} at once");
            let (next, kept) = if (held, waiting) == (Some(Kind::Write), Some(Kind::Read)) {
                let kept = guard.downgrade().await;
                let next = within(PATIENCE, waiter).await.unwrap();
                assert_eq!(next.token(), kept.token());
                (next, Some(kept))
            } else {
                guard.release().await;
                (within(PATIENCE, waiter).await.unwrap(), None)
            };
            assert!(
                token.is_none() || next.token() > token,
                "{held:?}, {waiting:?}"
            );
            for guard in [Some(next), kept].into_iter().flatten() {
                guard.release().await;
            }
            store.until_free(&key, SOON).await;
        }
    };
    futures::future::join_all(HAND_OFFS.into_iter().enumerate().map(hand_off)).await;
}

tests_on!(tls, Tls, each_kind_is_renewed_and_handed_off);
tests_on!(sentinel, Sentinel, each_kind_is_renewed_and_handed_off each_kind_is_acknowledged_by_a_replica);
