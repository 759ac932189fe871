//! A simulated world: a server, clients and time.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::oracle::{Known, Oracle};
use super::time::{BootClock, ServerClock, WorldTime};
use crate::__inside::seeded::SeededRandom;
use crate::__inside::simulation::faulty::{
    CONFIG, Conditions, FaultyServer, Host, Network, Site, ToServer,
};
use crate::config::options::Defaults;
use crate::error::LockKind;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::manager::builder::connect::CoreBuilder;
use crate::manager::builder::dependencies::Dependencies;
use crate::manager::core::executor::Executor;
use crate::protocol::timing::Timing;
use crate::store::Settings;
use crate::store::client_id::ClientId;
use crate::store::redis::RedisStore;
use crate::store::redis::conn::client::Client as User;
use crate::store::redis::transport::config::RedisConfig;
use crate::util::clock::Clock;
use crate::util::random::Random;

pub(crate) struct World {
    pub(crate) time: Arc<WorldTime>,
    pub(crate) network: Arc<Network>,
    pub(crate) conditions: Arc<Conditions>,
    pub(crate) oracle: Arc<Oracle>,
    pub(crate) server: Arc<FaultyServer>,
    pub(crate) keys: Vec<LockKey>,
    /// The kind of the lock of each key.
    pub(crate) kinds: Vec<LockKind>,
    /// The leases used in this world, in milliseconds.
    pub(crate) leases: Vec<u64>,
    pub(crate) min_hold: Duration,
    /// Upper limit of a client's runtime connections.
    max_runtime_connections: usize,
    over: AtomicBool,
    ended: Notify,
}

/// A client: a manager in a simulated process of its own.
pub(crate) struct Client {
    pub(crate) index: usize,
    pub(crate) manager: LockManager,
    pub(crate) site: Arc<Site>,
    pub(crate) host: Arc<Host>,
}

impl World {
    pub(crate) fn new(random: &SeededRandom) -> Arc<Self> {
        let leases: Vec<u64> = (0..random.between(1, 2))
            .map(|_| *random.pick(&[50, 80, 150, 300, 300, 500, 1_000, 2_000]))
            .collect();
        let shortest = leases.iter().copied().min().unwrap_or(0);
        let deadline = Timing::new(Duration::from_millis(shortest)).command_timeout();
        let deadline = u64::try_from(deadline.as_millis()).unwrap();
        let conditions = Arc::new(Conditions::drawn(deadline, &random.fork()));
        let time = WorldTime::new();
        let network = Network::new();
        let oracle = Oracle::new(network.clone(), time.clone());
        let server = FaultyServer::new(
            Arc::new(ServerClock(time.clone())),
            conditions.clone(),
            oracle.clone(),
        );
        let keys: Vec<_> = ["a", "b", "c"][..usize::try_from(*random.pick(&[1, 1, 2, 3])).unwrap()]
            .iter()
            .map(|key| LockKey::new(key).unwrap())
            .collect();
        let semaphore = LockKind::Semaphore {
            permits: *random.pick(&[1, 2, 3, 5]),
        };
        let [mutex, rw] = [LockKind::Mutex, LockKind::ReadWrite];
        // At most one key is counted, because calls for several keys need mutexes.
        let counted = *random.pick(&[mutex, mutex, rw, semaphore]);
        let mut kinds = vec![mutex; keys.len() - 1];
        kinds.push(counted);
        Arc::new(World {
            time,
            network,
            conditions,
            oracle,
            server,
            keys,
            kinds,
            leases,
            min_hold: Duration::from_millis(*random.pick(&[0, 0, 0, 100, 300])),
            max_runtime_connections: *random.pick(&[0, 1]),
            over: AtomicBool::new(false),
            ended: Notify::new(),
        })
    }

    /// Creates a client that has connected, or connects lazily.
    pub(crate) async fn client(&self, index: usize, random: &SeededRandom) -> Arc<Client> {
        let clock: Arc<dyn Clock> = Arc::new(BootClock {
            time: self.time.clone(),
            origin: Duration::from_secs(random.between(3_600, 36_000)),
            drift: i128::from(random.between(0, 2_000)) - 1_000,
        });
        let host: Arc<Host> = Arc::default();
        let id = of_another_process(random);
        self.oracle.knows(Known {
            id: id.clone(),
            clock: clock.clone(),
            host: host.clone(),
        });
        let executor = Executor {
            handle: Handle::current(),
            inline: false,
            decorator: Some(host.wrap()),
        };
        let dependencies = Dependencies {
            clock: clock.clone(),
            random: Arc::new(random.fork()),
            // One call opens a runtime connection, because a world is short.
            runtime_connection_after: 1,
            ..Dependencies::default()
        };
        let core = CoreBuilder::on_executor(executor, dependencies);
        let (server, network) = (self.server.clone(), self.network.clone());
        let site = Site::new(index, host.clone(), server, network, random.fork());
        let transport = Arc::new(ToServer(site.clone()));
        let config = RedisConfig {
            max_runtime_connections: self.max_runtime_connections,
            ..CONFIG.clone()
        };
        let settings = Settings::named(format!("c{index}"));
        let manager = core.build(&settings, Defaults::default(), |core, manager| {
            let user = User {
                random: Arc::new(random.fork()),
                ..core.client(Settings::named(&id.as_str()[..6]), manager)
            };
            let user = User { id, ..user };
            RedisStore::connect_lazy_over(transport, None, &config, user)
        });
        if !random.chance(200) {
            manager.core().store.ready().await;
        }
        Arc::new(Client {
            index,
            manager,
            site,
            host,
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Ends the fault phase and the work.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.ended.notify_waiters();
    }

    /// Sleeps, but not beyond the end of the fault phase.
    pub(crate) async fn pause(&self, millis: u64) {
        let mut ended = pin!(self.ended.notified());
        ended.as_mut().enable();
        if !self.is_over() {
            // The sleep ends with either of the two, so the result does not matter.
            let _ = tokio::time::timeout(Duration::from_millis(millis), ended).await;
        }
    }

    pub(crate) fn longest_lease(&self) -> Duration {
        Duration::from_millis(self.leases.iter().copied().max().unwrap_or(0))
    }
}

/// Creates an id as of the only client of another process.
fn of_another_process(random: &SeededRandom) -> ClientId {
    let process = format!("{:016x}{:08x}", random.next(), random.next() >> 32);
    ClientId::from_str(&format!("{process}{:08x}", 1))
}
