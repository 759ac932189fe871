//! Where the leader writes: a journal that refuses a leader who has a successor.

use anyhow::{Result, bail};
use distlock::FencingToken;
use redis::aio::MultiplexedConnection;

/// How many entries are kept.
const KEPT: usize = 10_000;

/// Compares and writes in one step. A refusal is an entry as well: it says that somebody worked who was not the leader any more.
const WRITE: &str = "
    local now = redis.call('TIME')
    local refused = tonumber(redis.call('GET', KEYS[2]) or 0) > tonumber(ARGV[1])
    if not refused then redis.call('SET', KEYS[2], ARGV[1]) end
    local micros = string.format('%.0f', now[1] * 1000000 + now[2])
    local what = refused and 'refused' or ARGV[3]
    redis.call('RPUSH', KEYS[1], micros .. ' ' .. ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. what)
    redis.call('LTRIM', KEYS[1], -ARGV[4], -1)
    return refused and 1 or 0";

/// A candidate's way to the journal of its group.
pub(crate) struct Journal {
    store: redis::Client,
    keys: [String; 2],
    candidate: String,
}

/// The keys of a journal and its newest token: of one hash slot, for the script writes both.
pub(crate) fn keys(group: &str) -> [String; 2] {
    let group = format!("leader:{{{group}}}");
    [format!("{group}:journal"), format!("{group}:token")]
}

impl Journal {
    pub(crate) fn new(store: redis::Client, group: &str, candidate: String) -> Self {
        Journal {
            store,
            keys: keys(group),
            candidate,
        }
    }

    /// A new connection for each term: a leader whose connection breaks is none.
    pub(crate) async fn open(&self) -> Result<MultiplexedConnection> {
        Ok(self.store.get_multiplexed_async_connection().await?)
    }

    /// Appends an entry in the name of the leader who has this token.
    pub(crate) async fn write(
        &self,
        connection: &mut MultiplexedConnection,
        token: FencingToken,
        what: &str,
    ) -> Result<()> {
        let mut eval = redis::cmd("EVAL");
        eval.arg(WRITE).arg(2).arg(&self.keys);
        eval.arg(token.get())
            .arg(&self.candidate)
            .arg(what)
            .arg(KEPT);
        if eval.query_async(connection).await? {
            bail!("the journal refuses token {token}: there is a newer leader");
        }
        Ok(())
    }
}
