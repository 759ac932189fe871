//! The scripts that were loaded on a server.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, RedisResult};
use tokio::sync::Mutex;

use crate::store::BoxFuture;
use crate::store::redis::transport::Connection;

/// The scripts that a connection uses. They are loaded when it is opened, and again when the server
/// has lost them: once, however many commands find them missing.
#[derive(Debug)]
pub(crate) struct LoadedScripts {
    load_commands: Vec<Cmd>,
    /// Number of times that the scripts were loaded again.
    reload_count: AtomicU64,
    reload_lock: Mutex<()>,
}

impl LoadedScripts {
    pub(crate) fn new(load_commands: Vec<Cmd>) -> Self {
        LoadedScripts {
            load_commands,
            reload_count: AtomicU64::new(0),
            reload_lock: Mutex::default(),
        }
    }

    /// Returns how many times the scripts were loaded again. Read it before sending a command.
    pub(crate) fn reload_count(&self) -> u64 {
        self.reload_count.load(Ordering::Acquire)
    }

    /// Loads the scripts, unless that was done since `count_before`.
    pub(crate) fn reload<'a>(
        &'a self,
        connection: &'a dyn Connection,
        count_before: u64,
    ) -> BoxFuture<'a, RedisResult<()>> {
        Box::pin(async move {
            let _guard = self.reload_lock.lock().await;
            if self.reload_count() != count_before {
                return Ok(());
            }
            let replies = connection.send_all(&self.load_commands).await?;
            self.reload_count.fetch_add(1, Ordering::Release);
            replies.into_iter().try_for_each(|reply| reply.map(drop))
        })
    }
}
