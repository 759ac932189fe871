//! The scripts that were loaded on a server.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, RedisResult};
use tokio::sync::Mutex;

use crate::store::BoxFuture;
use crate::store::redis::transport::Connection;

/// The scripts that a connection uses. They are loaded when it is opened, and again when the server
/// has lost them: once, however many commands find them missing.
#[derive(Debug)]
pub(crate) struct Known {
    loads: Vec<Cmd>,
    /// Number of times that the scripts were loaded again.
    loaded: AtomicU64,
    loading: Mutex<()>,
}

impl Known {
    pub(crate) fn new(loads: Vec<Cmd>) -> Self {
        Known {
            loads,
            loaded: AtomicU64::new(0),
            loading: Mutex::default(),
        }
    }

    /// Returns how often the scripts were loaded again. Read it before sending a command.
    pub(crate) fn loaded(&self) -> u64 {
        self.loaded.load(Ordering::Acquire)
    }

    /// Loads the scripts, unless that was done since `seen`.
    pub(crate) fn load_again<'a>(
        &'a self,
        connection: &'a dyn Connection,
        seen: u64,
    ) -> BoxFuture<'a, RedisResult<()>> {
        Box::pin(async move {
            let _turn = self.loading.lock().await;
            if self.loaded() != seen {
                return Ok(());
            }
            let replies = connection.send_all(&self.loads).await?;
            self.loaded.fetch_add(1, Ordering::Release);
            replies.into_iter().try_for_each(|reply| reply.map(drop))
        })
    }
}
