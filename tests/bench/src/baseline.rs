//! What our figures are compared with: bare commands over the same redis crate, with the same socket
//! settings, on the caller's runtime or through a thread like the one that distlock has.

use std::future::Future;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, ensure};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, ProtocolVersion, Value};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The release that every simple Redis lock has.
const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                                  return redis.call('del', KEYS[1]) else return 0 end";

const LEASE_MS: u64 = 30_000;
const KEEPALIVE: Duration = Duration::from_secs(10);
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// A multiplexed connection that takes and deletes keys without any safety.
#[derive(Clone, Debug)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    script: Arc<str>,
}

impl Bare {
    /// Connects on the current runtime.
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
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
        // Without timers of its own: the baseline is as cheap as the crate can be.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(COMPARE_AND_DELETE);
        let script: String = load.query_async(&mut connection).await?;
        Ok(Bare {
            connection,
            script: script.into(),
        })
    }

    /// Takes a key if nobody has it.
    pub(crate) async fn try_set(mut self, key: Arc<str>, owner: Arc<str>) -> anyhow::Result<bool> {
        let mut set = redis::cmd("SET");
        set.arg(&*key)
            .arg(&*owner)
            .arg("NX")
            .arg("PX")
            .arg(LEASE_MS);
        let reply: Value = set.query_async(&mut self.connection).await?;
        Ok(reply == Value::Okay)
    }

    async fn set(self, key: Arc<str>, owner: Arc<str>) -> anyhow::Result<()> {
        let taken = self.try_set(key.clone(), owner).await?;
        ensure!(taken, "`{key}` was taken already");
        Ok(())
    }

    /// Deletes a key that is this owner's.
    pub(crate) async fn delete(mut self, key: Arc<str>, owner: Arc<str>) -> anyhow::Result<()> {
        let mut delete = redis::cmd("EVALSHA");
        delete.arg(&*self.script).arg(1).arg(&*key).arg(&*owner);
        let deleted: i64 = delete.query_async(&mut self.connection).await?;
        ensure!(deleted == 1, "`{key}` was gone already");
        Ok(())
    }

    /// Takes a key and deletes it again.
    pub(crate) async fn pair(&self, key: &Arc<str>, owner: &Arc<str>) -> anyhow::Result<()> {
        self.clone().set(key.clone(), owner.clone()).await?;
        self.clone().delete(key.clone(), owner.clone()).await
    }

    pub(crate) async fn ping(&self) -> anyhow::Result<()> {
        let mut connection = self.connection.clone();
        redis::cmd("PING")
            .query_async::<Value>(&mut connection)
            .await?;
        Ok(())
    }
}

/// A [`Bare`] on a thread with a current-thread runtime of its own: each command is a task that is
/// spawned there, and a reply that is awaited here. It stops when it is dropped.
#[derive(Debug)]
pub(crate) struct OnThread {
    handle: Handle,
    bare: Bare,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl OnThread {
    pub(crate) async fn start(url: &str) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new()
            .name("baseline-io".into())
            .spawn(move || {
                // An error means that the sender is gone, which stops it as well.
                let _ = runtime.block_on(stopped);
                runtime.shutdown_background();
            })?;
        let url = url.to_owned();
        let bare = on(&handle, async move { Bare::connect(&url).await }).await?;
        Ok(OnThread {
            handle,
            bare,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Takes a key and deletes it again.
    pub(crate) async fn pair(&self, key: &Arc<str>, owner: &Arc<str>) -> anyhow::Result<()> {
        on(
            &self.handle,
            self.bare.clone().set(key.clone(), owner.clone()),
        )
        .await?;
        on(
            &self.handle,
            self.bare.clone().delete(key.clone(), owner.clone()),
        )
        .await
    }

    pub(crate) async fn ping(&self) -> anyhow::Result<()> {
        let bare = self.bare.clone();
        on(&self.handle, async move { bare.ping().await }).await
    }
}

impl Drop for OnThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say; a panic there was reported as a missing answer.
            let _ = thread.join();
        }
    }
}

async fn on<T: Send + 'static>(
    handle: &Handle,
    work: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    let (reply, answer) = oneshot::channel();
    handle.spawn(async move {
        // The caller waits for it.
        let _ = reply.send(work.await);
    });
    answer.await.context("the baseline's thread is gone")?
}
