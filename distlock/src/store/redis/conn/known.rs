//! Which scripts the server was made to know.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, RedisResult};
use tokio::sync::Mutex;

use crate::store::BoxFuture;
use crate::store::redis::transport::Connection;

/// The scripts that a connection uses. The server was made to know them when it was opened, and is
/// again when it has forgotten them: once, however many commands find it out.
#[derive(Debug)]
pub(crate) struct Known {
    loads: Vec<Cmd>,
    /// How often they were loaded.
    loaded: AtomicU64,
    loading: Mutex<()>,
}

impl Known {
    /// `loads` are the commands that make the server know the scripts.
    pub(crate) fn new(loads: Vec<Cmd>) -> Self {
        Known {
            loads,
            loaded: AtomicU64::new(0),
            loading: Mutex::default(),
        }
    }

    /// How often they were loaded: to be read before a command is sent.
    pub(crate) fn loaded(&self) -> u64 {
        self.loaded.load(Ordering::Acquire)
    }

    /// Loads them, unless that was done since `seen`.
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
