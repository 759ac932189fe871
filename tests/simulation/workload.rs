//! The calls of the clients: every way to acquire a lock, and every way to end a hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::oracle::brief;
use super::world::{Client, World};
use crate::__inside::seeded::SeededRandom;
use crate::__inside::simulation::faulty::{Fault, Role};
use crate::error::{Error, HoldKind, LockKind};
use crate::lock::Lock;
use crate::lock::guard::LockGuard;
use crate::lock::held::HeldLock;
use crate::lock::rw_guards::{RwLockReadGuard, RwLockWriteGuard};
use crate::loss::LossReason;
use crate::manager::core::held::HoldHandle;
use crate::protocol::kind::Kind;
use crate::protocol::timing::Timing;

/// The delay after its timeout until a command on a runtime connection is found to be late.
const LATE_REPLY_DELAY: Duration = Duration::from_millis(26);

/// Longer than any call takes, in milliseconds.
const NEVER: u64 = 600_000;

/// Runs one task of a client until the fault phase ends.
pub(crate) async fn work(world: Arc<World>, client: Arc<Client>, random: SeededRandom) {
    let mut user = User {
        world,
        client,
        random,
    };
    let calls = user.random.between(2, 8);
    for _ in 0..calls {
        let gap = *user.random.pick(&[0, 0, 1, 5, 40, 150]);
        user.world.pause(gap).await;
        if user.world.is_over() {
            return;
        }
        user.call().await;
    }
}

struct User {
    world: Arc<World>,
    client: Arc<Client>,
    random: SeededRandom,
}

/// The lock, the wait and the timing of a call.
struct Order {
    lock: Lock,
    wait: Duration,
    timing: Timing,
}

/// The steps of a body and the pause before each.
#[derive(Clone, Copy)]
struct Plan {
    steps: u64,
    pause: u64,
}

impl User {
    fn order(&self, wait: u64) -> Order {
        let index = self.random.below(self.world.keys.len() as u64);
        self.order_of(usize::try_from(index).unwrap(), wait)
    }

    /// Returns the key of a mutex; `None` if there is none.
    fn mutex(&self) -> Option<usize> {
        let kinds = self.world.kinds.iter().enumerate();
        let mutexes = kinds.filter(|(_, kind)| **kind == LockKind::Mutex);
        let mutexes: Vec<_> = mutexes.map(|(index, _)| index).collect();
        (!mutexes.is_empty()).then(|| *self.random.pick(&mutexes))
    }

    fn order_of(&self, index: usize, wait: u64) -> Order {
        let random = &self.random;
        let key = &self.world.keys[index];
        // As `read`, `write` and `acquire_many` do.
        let kind = match self.world.kinds[index] {
            LockKind::Mutex => Kind::Mutex,
            LockKind::ReadWrite if random.chance(400) => Kind::Write,
            LockKind::ReadWrite => Kind::Read,
            LockKind::Semaphore { permits } => {
                // A deployment changes the number.
                let permits = *random.pick(&[permits, permits, permits, permits + 1]);
                let weight = u32::try_from(random.between(1, u64::from(permits))).unwrap();
                Kind::Permits { permits, weight }
            }
        };
        let lease = Duration::from_millis(*random.pick(&self.world.leases));
        let wait = Duration::from_millis(wait);
        let mut lock = self.client.manager.lock(key.as_str()).of_kind(kind);
        lock = lock.lease(lease).wait(wait);
        if random.chance(80) {
            lock = lock.max_hold(lease + Duration::from_millis(random.between(1, 200)));
        }
        // A call with a `wait` of at least its own `min_hold` is rejected.
        if random.chance(200) && wait < self.world.min_hold {
            lock = lock.min_hold(self.world.min_hold);
        }
        Order {
            lock,
            wait,
            timing: Timing::new(lease),
        }
    }

    fn wait(&self) -> u64 {
        *self.random.pick(&[1, 30, 200, 700, 1_500, 3_000])
    }

    fn plan(&self, order: &Order) -> Plan {
        let lease = u64::try_from(order.timing.lease.as_millis()).unwrap();
        let lasts = *self
            .random
            .pick(&[0, 0, 1, 3, 10, lease / 4, lease, 2 * lease]);
        let steps = self.random.between(1, 4);
        Plan {
            steps,
            pause: lasts / steps,
        }
    }

    async fn call(&mut self) {
        if self.world.conditions.delays_acquires() && self.random.chance(300) {
            return self.abandon_at_reset().await;
        }
        let mutex = self.mutex();
        match (self.random.below(14), mutex) {
            (0..=2, _) => self.acquire(false, false).await,
            (3, _) => self.acquire(false, true).await,
            (4, _) => self.acquire(true, self.random.chance(500)).await,
            (5..=7, _) => self.run(NEVER).await,
            (8, _) => self.run(self.random.between(1, 600)).await,
            (9, _) => self.abandon().await,
            (10, Some(mutex)) => self.several_keys(mutex).await,
            (11 | 12, _) => self.nest().await,
            (13, Some(mutex)) => self.once(mutex).await,
            _ => self.acquire(false, true).await,
        }
    }

    async fn acquire(&self, tries: bool, drops: bool) {
        let order = self.order(if tries { 0 } else { self.wait() });
        if let Some(guard) = self.acquired(&order, tries).await {
            self.hold(guard, self.plan(&order), drops).await;
        }
    }

    async fn acquired(&self, order: &Order, tries: bool) -> Option<LockGuard> {
        let (oracle, index) = (&self.world.oracle, self.client.index);
        let call = oracle.call(index);
        oracle.count("calls");
        let late = order.timing.command_timeout() + LATE_REPLY_DELAY;
        let (result, limit) = if tries {
            // The acquire is retried at once if the server's time was not known.
            (order.lock.try_acquire().await, 2 * late)
        } else {
            (order.lock.acquire().await.map(Some), order.wait + late)
        };
        oracle.called(index, &call, limit, result.as_ref().map(drop));
        let guard = result.ok()??;
        oracle.acquired(&self.world.server, index, &guard.held);
        Some(guard)
    }

    /// Works under a guard, which does not stop its body.
    async fn hold(&self, mut guard: LockGuard, plan: Plan, drops: bool) {
        self.steps(&guard, plan).await;
        if guard.held.kind() == Kind::Write && self.random.chance(500) {
            let Some(downgraded) = self.downgrade(guard).await else {
                return;
            };
            guard = downgraded;
            self.steps(&guard, plan).await;
        }
        let hold = guard.held().0;
        let (oracle, index) = (&self.world.oracle, self.client.index);
        if drops {
            drop(guard);
        } else {
            let was_valid = oracle.is_believed(index, &hold);
            // The hold ends at once, although the reply is awaited.
            let release = guard.release();
            let released = release.await;
            if released.is_ok() {
                oracle.succeeded(index, &hold, was_valid);
            }
        }
        oracle.gave_back(index, &hold);
    }

    /// Downgrades a write hold. The call may be dropped.
    async fn downgrade(&self, guard: LockGuard) -> Option<LockGuard> {
        let (oracle, index) = (&self.world.oracle, self.client.index);
        let hold = guard.held().0;
        let dropped_after = if self.random.chance(250) { 20 } else { 60_000 };
        let after = Duration::from_millis(self.random.between(0, dropped_after));
        let downgrade = RwLockWriteGuard(guard).downgrade();
        let result = tokio::time::timeout(after, downgrade).await;
        oracle.gave_back(index, &hold);
        match result {
            Ok(Ok(RwLockReadGuard(guard))) => {
                oracle.acquired(&self.world.server, index, &guard.held);
                return Some(guard);
            }
            Ok(Err(_)) => oracle.count("downgrades: lost"),
            Err(_) => oracle.count("downgrades: dropped"),
        }
        None
    }

    async fn steps(&self, guard: &LockGuard, plan: Plan) {
        let (oracle, index) = (&self.world.oracle, self.client.index);
        for _ in 0..plan.steps {
            tokio::select! {
                biased;
                error = guard.lost() => {
                    oracle.saw_end(index, &guard.held);
                    if let Error::Lost { reason: LossReason::Gone, .. } = error {
                        oracle.check_gone(&self.world.server, index, &guard.held);
                    }
                    // A late reply to a renewal may still arrive.
                    self.world.pause(self.random.below(60)).await;
                    if guard.is_held() {
                        let owner = guard.held.entry.owner;
                        oracle.violated(format_args!("c{index} #{owner} is held after its loss"));
                    }
                    return;
                }
                () = self.world.pause(plan.pause) => {}
            }
            if !guard.is_held() {
                return;
            }
            oracle.step(&self.world.server, index, &guard.held);
            if self.world.is_over() {
                return;
            }
        }
    }

    /// Runs a body with `Lock::run`, which stops it at a loss. The call may be dropped earlier.
    async fn run(&self, dropped_after: u64) {
        let order = self.order(self.wait());
        let plan = self.plan(&order);
        let run = order
            .lock
            .run(async |held: HeldLock| Ok(vec![self.body(held.0.clone(), plan).await]));
        self.ended(run, dropped_after).await;
    }

    /// Awaits a run, which is dropped after some milliseconds, and checks its bodies.
    async fn ended(
        &self,
        run: impl Future<Output = Result<Vec<(HoldHandle, bool)>, Error>>,
        dropped_after: u64,
    ) {
        let (oracle, index) = (&self.world.oracle, self.client.index);
        oracle.count("calls");
        match tokio::time::timeout(Duration::from_millis(dropped_after), run).await {
            Ok(Ok(bodies)) => {
                for (hold, was_valid) in bodies {
                    oracle.succeeded(index, &hold, was_valid);
                }
            }
            Ok(Err(Error::AlreadyRan { .. })) => oracle.count("calls: already ran"),
            Ok(Err(error)) => oracle.line(format_args!("c{index} runs into: {}", brief(&error))),
            Err(_) => oracle.count("calls: dropped"),
        }
    }

    /// Returns after how many milliseconds a call is dropped, which is early for a share of them.
    fn dropped_after(&self, share: u64) -> u64 {
        let latest = if self.random.chance(share) {
            400
        } else {
            60_000
        };
        self.random.between(1, latest)
    }

    /// Runs a body at most once per second. It may fail, or be dropped.
    async fn once(&self, mutex: usize) {
        let order = self.order_of(mutex, self.wait());
        let plan = self.plan(&order);
        let lock = self.client.manager.lock(order.lock.key());
        let lock = lock.lease(order.timing.lease).wait(order.wait);
        let lock = lock.once_per(Duration::from_secs(1));
        let fails = self.random.chance(250);
        let run = lock.run(async |held: HeldLock| {
            let body = self.body(held.0.clone(), plan).await;
            if fails {
                return Err(Error::config("the body fails"));
            }
            self.world.oracle.succeeds(self.client.index, &held.0);
            Ok(vec![body])
        });
        self.ended(run, self.dropped_after(200)).await;
    }

    async fn body(&self, hold: HoldHandle, plan: Plan) -> (HoldHandle, bool) {
        let (oracle, index) = (&self.world.oracle, self.client.index);
        oracle.count("calls: ok");
        oracle.acquired(&self.world.server, index, &hold);
        let _probe = Probe {
            user: self,
            hold: hold.clone(),
        };
        oracle.step(&self.world.server, index, &hold);
        for _ in 0..plan.steps {
            self.world.pause(plan.pause).await;
            oracle.step(&self.world.server, index, &hold);
        }
        let was_valid = oracle.is_believed(index, &hold);
        (hold, was_valid)
    }

    /// Runs a body under two locks. The call may be dropped earlier.
    async fn several_keys(&self, mutex: usize) {
        let order = self.order_of(mutex, self.wait());
        let second = self.world.keys[self.mutex().unwrap_or(mutex)].as_str();
        let locks = self.client.manager.lock_all([order.lock.key(), second]);
        let locks = locks.lease(order.timing.lease).wait(order.wait);
        let plan = self.plan(&order);
        let run = locks.run(async |mut held| {
            // The second key may be the first one.
            held.dedup_by(|a, b| Arc::ptr_eq(&a.0.entry, &b.0.entry));
            let bodies = held
                .into_iter()
                .map(|hold| Box::pin(self.body(hold.0, plan)));
            Ok(futures_util::future::join_all(bodies).await)
        });
        self.ended(run, self.dropped_after(300)).await;
    }

    /// Makes a call that is dropped while it waits.
    async fn abandon(&self) {
        let order = self.order(self.wait());
        let after = Duration::from_millis(self.random.between(0, 400));
        self.abandoned(&order, tokio::time::sleep(after)).await;
    }

    /// Makes a call that is dropped while its acquire is in flight on a lost connection.
    async fn abandon_at_reset(&self) {
        let order = self.order(3_000);
        let (oracle, index) = (&self.world.oracle, self.client.index);
        let reset = async {
            self.world.pause(self.random.below(3)).await;
            if !self.world.is_over() {
                oracle.fault(
                    Fault::Reset,
                    Some(index),
                    format_args!("unseen by the server"),
                );
                for role in [Role::Commands, Role::RuntimeConnection] {
                    self.client.site.lose(role, false, "reset");
                }
            }
            self.world.pause(self.random.below(20)).await;
        };
        self.abandoned(&order, reset).await;
    }

    /// Makes a call that is dropped when `until` ends.
    async fn abandoned(&self, order: &Order, until: impl Future<Output = ()>) {
        let (oracle, index) = (&self.world.oracle, self.client.index);
        oracle.count("calls");
        tokio::select! {
            biased;
            acquired = order.lock.acquire() => {
                if let Ok(guard) = acquired {
                    oracle.acquired(&self.world.server, index, &guard.held);
                    self.hold(guard, self.plan(order), true).await;
                }
            }
            () = until => oracle.count("calls: dropped"),
        }
    }

    /// Re-enters the lock in two branches of one body. They take turns, unless they read, and send
    /// no command.
    async fn nest(&self) {
        let order = self.order(self.wait());
        let kind = order.lock.kind;
        if kind.hold_kind() == HoldKind::Semaphore {
            // A nested call would acquire further permits.
            return self.acquire(false, false).await;
        }
        let Some(guard) = self.acquired(&order, false).await else {
            return;
        };
        let inside = AtomicU32::new(0);
        let oracle = &self.world.oracle;
        let branch = async || {
            let Ok(inner) = order.lock.acquire().await else {
                return;
            };
            if inside.fetch_add(1, Ordering::Relaxed) != 0 && kind != Kind::Read {
                oracle.violated(format_args!("two branches are inside of one hold"));
            }
            if inner.fencing_token() != guard.fencing_token() {
                oracle.violated(format_args!("a re-entry has a token of its own"));
            }
            oracle.count("re-entries");
            self.steps(&inner, Plan { steps: 1, pause: 3 }).await;
            inside.fetch_sub(1, Ordering::Relaxed);
        };
        let both = async {
            tokio::join!(branch(), branch());
        };
        guard.scope(both).await;
        self.hold(guard, self.plan(&order), false).await;
    }
}

/// Observes the end of a body, whatever ends it.
struct Probe<'a> {
    user: &'a User,
    hold: HoldHandle,
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        let (oracle, index) = (&self.user.world.oracle, self.user.client.index);
        if !oracle.is_believed(index, &self.hold) {
            oracle.saw_end(index, &self.hold);
        }
        oracle.gave_back(index, &self.hold);
    }
}
