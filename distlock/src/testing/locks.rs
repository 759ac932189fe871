//! Locks for tests: a manager with outcomes that a test sets, and a record of acquisitions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::attribute::as_lock_manager::AsLockManager;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::manager::builder::LockManagerBuilder;
use crate::manager::core::held::HoldHandle;
use crate::testing::loss::InjectedLoss;
use crate::testing::outcomes::Outcomes;
use crate::testing::record::AcquireRecord;
use crate::testing::script::{OutcomeTarget, ScriptedOutcome, SetOutcome, TestScript};
use crate::testing::store::TestStore;
use crate::util::sync::wait_until;

/// Locks for a test: a manager with its own in-process store. The test can set outcomes, and
/// acquisitions are recorded. See the [module](crate::testing).
///
/// Pass the manager to annotated functions with [`with_manager`](crate::with_manager), or pass the
/// `TestLocks` as their `manager = ...`. Clones share their locks; another `new` shares none.
///
/// ```
/// # use distlock::testing::{TestLocks, holder};
/// #[distlock::distributed_lock(key = "inventory:<item_id>", wait = "5s", manager = locks)]
/// async fn reduce(locks: &TestLocks, item_id: u32) -> Result<u32, distlock::Error> {
///     Ok(item_id)
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), distlock::Error> {
/// let locks = TestLocks::new();
/// locks.on("inventory:7").busy(holder("worker-2"));
/// assert!(reduce(&locks, 7).await.is_err_and(|error| error.is_busy()));
/// assert_eq!(reduce(&locks, 8).await?, 8);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct TestLocks {
    manager: LockManager,
    script: Arc<TestScript>,
}

impl TestLocks {
    /// Creates locks on the current tokio runtime. They take the time from `tokio::time`, so that
    /// tests can pause it.
    ///
    /// ```
    /// # use distlock::{distributed_lock, testing::TestLocks};
    /// #[distributed_lock(key = "inventory:<item_id>")]
    /// async fn reduce(item_id: u32) -> Result<u32, distlock::Error> {
    ///     Ok(item_id)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let locks = TestLocks::new();
    /// let reduced = distlock::with_manager(locks.manager(), reduce(7)).await;
    /// assert_eq!(reduced.unwrap(), 7);
    /// assert_eq!(locks.acquire_count("inventory:7"), 1);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    #[track_caller]
    #[must_use]
    pub fn new() -> Self {
        Self::from_builder(LockManager::builder())
    }

    /// Creates the same with settings, such as a [`client_name`](LockManagerBuilder::client_name).
    /// Settings of connections are ignored.
    ///
    /// ```
    /// # use distlock::{LockManager, testing::TestLocks};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let locks = TestLocks::from_builder(LockManager::builder().client_name("checkout-3"));
    /// let _guard = locks.manager().lock("report").acquire().await?;
    /// let seen = locks.manager().inspect("report").await?;
    /// assert_eq!(seen.holders[0].client, "checkout-3");
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime, and for an invalid setting.
    #[track_caller]
    #[must_use]
    pub fn from_builder(builder: LockManagerBuilder) -> Self {
        let script: Arc<TestScript> = Arc::default();
        let mut builder = builder;
        builder.dependencies.call_hook = Some(Arc::new(script.clone()));
        let made =
            builder.in_memory_with(|memory, core| TestStore::open(memory, script.clone(), core));
        let manager = made.unwrap_or_else(|error| {
            panic!(
                "`TestLocks` could not be created ({error}); create it inside of a `#[tokio::test]`, with valid \
                 settings"
            )
        });
        TestLocks { manager, script }
    }

    /// Returns the manager, for [`with_manager`](crate::with_manager), for code that takes a
    /// manager, and for locks without the attribute.
    #[must_use]
    pub fn manager(&self) -> LockManager {
        self.manager.clone()
    }

    /// Selects the calls for the lock of this key, to set their outcome.
    ///
    /// ```
    /// # use distlock::testing::{TestLocks, holder};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// let locks = TestLocks::new();
    /// locks.on("inventory:7").busy(holder("worker-2"));
    /// assert!(locks.manager().lock("inventory:7").try_acquire().await?.is_none());
    /// assert!(locks.manager().lock("inventory:8").try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if this is not a lock key.
    #[track_caller]
    pub fn on(&self, key: &str) -> Outcomes<'_> {
        let key = LockKey::new(key).unwrap_or_else(|error| panic!("{error}"));
        Outcomes::new(&self.manager, &self.script, OutcomeTarget::key(&key))
    }

    /// Selects the calls with this label, to set their outcome. The label of an annotated function
    /// is the template of its key, exactly as written.
    pub fn on_label(&self, label: impl Into<String>) -> Outcomes<'_> {
        Outcomes::new(
            &self.manager,
            &self.script,
            OutcomeTarget::Label(label.into()),
        )
    }

    /// Selects the calls for any lock, to set their outcome.
    pub fn on_all(&self) -> Outcomes<'_> {
        Outcomes::new(&self.manager, &self.script, OutcomeTarget::All)
    }

    /// Removes everything that was set. Acquisitions stay recorded.
    pub fn clear(&self) {
        self.script.clear(self.manager.core(), None);
    }

    /// Makes the call that holds the lock of this key lose it.
    ///
    /// ```
    /// # use distlock::testing::{InjectedLoss, TestLocks};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::Error> {
    /// # let locks = TestLocks::new();
    /// let guard = locks.manager().lock("report").acquire().await?;
    /// locks.lose("report", InjectedLoss::Gone);
    /// assert!(guard.lost().await.is_lost());
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the lock is not held, because there is nothing to lose.
    /// [`wait_until_held`](TestLocks::wait_until_held) waits until it is held.
    #[track_caller]
    pub fn lose(&self, key: &str, loss: InjectedLoss) {
        let Some(hold) = self.hold(key) else {
            panic!(
                "lock `{key}` cannot be lost because it is not held; {}",
                self.account()
            );
        };
        let outcome = ScriptedOutcome::Lost {
            after: Duration::ZERO,
            loss,
        };
        let set = SetOutcome {
            target: OutcomeTarget::None,
            left: None,
            until: None,
            outcome,
        };
        let set = self.script.add(self.manager.core(), set);
        let script = self.script.clone();
        let lose = async move { script.lose(hold, loss, set).await };
        self.manager.core().executor.run_or_spawn(lose);
    }

    /// Waits until the lock of this key is held, for example by a spawned task, however long that
    /// takes. `tokio::time::timeout` ends a test that waits in vain, under paused time at once.
    ///
    /// ```
    /// # use distlock::testing::TestLocks;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let locks = TestLocks::new();
    /// let lock = locks.manager().lock("report");
    /// let work = tokio::spawn(async move { lock.run(async |_| std::future::pending::<Result<(), distlock::Error>>().await).await });
    /// locks.wait_until_held("report").await;
    /// assert!(!work.is_finished());
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn wait_until_held(&self, key: &str) {
        wait_until(&self.script.acquired, || self.hold(key)).await;
    }

    /// Returns the keys of the locks that are held now, in order. It omits locks of a holder set
    /// with [`busy`](Outcomes::busy), and keys that only `min_hold` keeps.
    #[must_use]
    pub fn held_keys(&self) -> Vec<String> {
        let keys: BTreeSet<_> = self.holds().map(|hold| hold.key().to_string()).collect();
        keys.into_iter().collect()
    }

    /// Returns all acquisitions so far, in order.
    #[must_use]
    pub fn acquisitions(&self) -> Vec<AcquireRecord> {
        self.script.acquisitions()
    }

    /// Returns how often the lock of this key was acquired so far.
    #[must_use]
    pub fn acquire_count(&self, key: &str) -> usize {
        let acquisitions = self.acquisitions();
        let of_key = acquisitions.iter().filter(|known| same(&known.key, key));
        of_key.count()
    }

    fn holds(&self) -> impl Iterator<Item = HoldHandle> {
        let core = self.manager.core();
        let held = core.registry.held().into_iter();
        let holds = held.filter_map(move |entry| HoldHandle::of(core, &entry));
        holds.filter(HoldHandle::is_held)
    }

    pub(crate) fn hold(&self, key: &str) -> Option<HoldHandle> {
        self.holds().find(|hold| same(hold.key(), key))
    }

    /// Returns a description of the held locks, for the message of a failed assertion.
    pub(crate) fn account(&self) -> String {
        let held = self.held_keys();
        if held.is_empty() {
            return "nothing is held".into();
        }
        let held: Vec<_> = held.iter().map(|key| format!("`{key}`")).collect();
        format!("held: {}", held.join(", "))
    }
}

impl Default for TestLocks {
    /// Same as [`new`](TestLocks::new).
    fn default() -> Self {
        Self::new()
    }
}

#[diagnostic::do_not_recommend]
impl AsLockManager for TestLocks {
    fn as_lock_manager(&self) -> &LockManager {
        &self.manager
    }
}

fn same(one: &str, other: &str) -> bool {
    let keys = LockKey::new(one).ok().zip(LockKey::new(other).ok());
    keys.is_some_and(|(one, other)| one.same_lock(&other))
}
