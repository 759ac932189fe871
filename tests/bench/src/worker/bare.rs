//! The baselines: bare commands over the same redis crate, with the same socket settings.

use std::future::pending;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, ProtocolVersion, Value};
use tokio::runtime::{Builder, Handle};

use super::load::Locker;
use super::order::{Round, Rounds};

/// The release script of every simple Redis lock.
const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                                  return redis.call('del', KEYS[1]) else return 0 end";
const LEASE_MS: u64 = 30_000;
/// The interval between attempts to acquire a held key.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const KEEPALIVE: Duration = Duration::from_secs(10);
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// A lock by `SET NX PX`, repeated until it succeeds, and a compare-and-delete.
#[derive(Clone)]
pub(super) struct Bare {
    connection: MultiplexedConnection,
    script: Arc<str>,
    owner: Arc<str>,
}

impl Bare {
    pub(super) async fn connect(url: &str, client: usize) -> anyhow::Result<Self> {
        let mut connection = open(url).await?;
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(COMPARE_AND_DELETE);
        let script: String = load.query_async(&mut connection).await?;
        Ok(Bare {
            connection,
            script: script.into(),
            owner: format!("{client:032x}:1").into(),
        })
    }
}

impl Locker for Bare {
    type Guard = ();

    async fn acquire(&self, key: &str) -> anyhow::Result<()> {
        let mut connection = self.connection.clone();
        let mut set = redis::cmd("SET");
        set.arg(key)
            .arg(&*self.owner)
            .arg("NX")
            .arg("PX")
            .arg(LEASE_MS);
        while set.query_async::<Value>(&mut connection).await? != Value::Okay {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    async fn release(&self, key: &str, (): ()) -> anyhow::Result<()> {
        let mut connection = self.connection.clone();
        let mut delete = redis::cmd("EVALSHA");
        delete.arg(&*self.script).arg(1).arg(key).arg(&*self.owner);
        let deleted: i64 = delete.query_async(&mut connection).await?;
        ensure!(deleted == 1, "`{key}` was deleted already");
        Ok(())
    }
}

/// PINGs over a connection of another thread, as far away as distlock's I/O thread. Every command
/// is a task that is spawned there and awaited here.
pub(super) struct PingThread {
    runtime: Handle,
    connection: MultiplexedConnection,
    count: usize,
}

impl PingThread {
    pub(super) async fn connect(url: &str, count: usize) -> anyhow::Result<Self> {
        let io = Builder::new_current_thread().enable_all().build()?;
        let runtime = io.handle().clone();
        thread::Builder::new()
            .name("baseline-io".into())
            .spawn(move || io.block_on(pending::<()>()))?;
        let url = url.to_owned();
        let connection = runtime.spawn(async move { open(&url).await }).await??;
        Ok(PingThread {
            runtime,
            connection,
            count,
        })
    }
}

impl Rounds for PingThread {
    async fn round(&mut self) -> anyhow::Result<Round> {
        let mut latencies = Vec::with_capacity(self.count);
        for _ in 0..self.count {
            let mut connection = self.connection.clone();
            let started = Instant::now();
            let ping = async move { redis::cmd("PING").exec_async(&mut connection).await };
            self.runtime.spawn(ping).await??;
            latencies.push(started.elapsed().as_secs_f64() * 1e6);
        }
        Ok(Round::new(self.count, [("latency", latencies)]))
    }
}

/// Opens a connection without timers, so that the baseline is as cheap as the crate can be.
async fn open(url: &str) -> anyhow::Result<MultiplexedConnection> {
    let info = url.into_connection_info()?;
    let redis = info.redis_settings().clone();
    let redis = redis
        .set_protocol(ProtocolVersion::RESP3)
        .set_skip_set_lib_name();
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE))
        .set_user_timeout(USER_TIMEOUT);
    let client = Client::open(info.set_redis_settings(redis).set_tcp_settings(tcp))?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    Ok(client
        .get_multiplexed_async_connection_with_config(&config)
        .await?)
}
