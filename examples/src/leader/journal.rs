//! The journal that the leader writes to. It rejects a leader that has a successor.

use anyhow::{Context as _, Result, ensure};
use distlock::FencingToken;
use redis::aio::MultiplexedConnection;

/// Upper limit of the entries in a journal.
const MAX_ENTRIES: usize = 10_000;

/// Compares and writes in one step.
const WRITE: &str = "
    if tonumber(redis.call('GET', KEYS[2]) or 0) > tonumber(ARGV[1]) then return 0 end
    redis.call('SET', KEYS[2], ARGV[1])
    local now = redis.call('TIME')
    local micros = string.format('%.0f', now[1] * 1000000 + now[2])
    redis.call('RPUSH', KEYS[1], micros .. ' ' .. ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[3])
    redis.call('LTRIM', KEYS[1], -ARGV[4], -1)
    return 1";

/// The keys of a journal and of its newest token. They share a hash slot, because the script writes
/// both.
pub(crate) fn keys(group: &str) -> [String; 2] {
    let group = format!("leader:{{{group}}}");
    [format!("{group}:journal"), format!("{group}:token")]
}

/// The journal of a group, as one candidate writes to it.
pub(crate) struct Journal {
    store: redis::Client,
    keys: [String; 2],
    candidate: String,
}

impl Journal {
    pub(crate) fn new(store: redis::Client, group: &str, candidate: String) -> Self {
        Journal {
            store,
            keys: keys(group),
            candidate,
        }
    }

    /// Opens a connection for a term. A broken connection ends its term, and the next term has
    /// another one.
    pub(crate) async fn open(&self) -> Result<MultiplexedConnection> {
        let connection = self.store.get_multiplexed_async_connection().await;
        connection.context("cannot connect to the journal")
    }

    /// Appends an entry in the name of the leader that has this token.
    pub(crate) async fn write(
        &self,
        connection: &mut MultiplexedConnection,
        token: FencingToken,
        entry: &str,
    ) -> Result<()> {
        let mut eval = redis::cmd("EVAL");
        eval.arg(WRITE).arg(2).arg(&self.keys);
        eval.arg(token.get()).arg(&self.candidate);
        eval.arg(entry).arg(MAX_ENTRIES);
        let is_written: bool = eval.query_async(connection).await?;
        ensure!(
            is_written,
            "the journal rejects token {token}: there is a newer leader"
        );
        Ok(())
    }
}
