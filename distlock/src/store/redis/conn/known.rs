//! Which scripts the server was made to know.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, RedisResult};
use tokio::sync::Mutex;

use crate::store::redis::transport::Connection;
use crate::store::redis::wire::scripts::ScriptId::{
    self, Ask, Confirm, Inspect, Look, Release, Renew, Repair, Yield,
};
use crate::store::redis::wire::scripts::{Script, Scripts};

/// The scripts that a connection uses. The server was made to know them when it was opened, and is
/// again when it has forgotten them: once, however many commands find it out.
#[derive(Debug)]
pub(crate) struct Known {
    scripts: Arc<Scripts>,
    used: Used,
    /// How often they were loaded.
    loaded: AtomicU64,
    loading: Mutex<()>,
}

/// Which of them a connection uses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Used {
    All,
    Renew,
    /// What proves a hold.
    Proofs,
    /// Some, each of which is sent by its source when the server does not know it: a proxy knows by
    /// its keys where a script goes, and loading has none.
    Unloaded,
}

impl Known {
    pub(crate) fn new(scripts: Arc<Scripts>, used: Used) -> Self {
        Known {
            scripts,
            used,
            loaded: AtomicU64::new(0),
            loading: Mutex::default(),
        }
    }

    /// The commands that make the server know them.
    pub(crate) fn loads(&self) -> Vec<Cmd> {
        let used: &[ScriptId] = match self.used {
            Used::Unloaded => &[],
            Used::Renew => &[Renew],
            Used::Proofs => &[Confirm, Renew],
            Used::All if self.scripts.are_of_quorum() => {
                &[Ask, Yield, Confirm, Repair, Release, Inspect]
            }
            Used::All => &[Ask, Confirm, Renew, Release, Look, Inspect],
        };
        let scripts = used.iter().map(|id| self.scripts.get(*id));
        scripts.map(Script::load).collect()
    }

    /// How often they were loaded: to be read before a command is sent.
    pub(crate) fn loaded(&self) -> u64 {
        self.loaded.load(Ordering::Acquire)
    }

    /// Loads them, unless that was done since `seen`.
    pub(crate) async fn load_again(
        &self,
        connection: &dyn Connection,
        seen: u64,
    ) -> RedisResult<()> {
        let _turn = self.loading.lock().await;
        if self.loaded() != seen {
            return Ok(());
        }
        let replies = connection.send_all(&self.loads()).await?;
        self.loaded.fetch_add(1, Ordering::Release);
        replies.into_iter().try_for_each(|reply| reply.map(drop))
    }
}
