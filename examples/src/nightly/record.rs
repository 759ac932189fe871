//! What is done: one record for each period, which only the newest holder of the lock may write.
//!
//! In a service it is a row of the database that the job writes to, and `finish` a part of the job's transaction.

use std::time::Duration;

use anyhow::{Result, bail};
use distlock::FencingToken;
use redis::aio::MultiplexedConnection;

/// Longer than anybody asks whether a period is done.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Reading is the first access with this token: from here on the record refuses all older ones. One clock says for all replicas whether
/// the period has begun, which is the server's: a machine whose own is ahead would do it in advance, and then it were done.
const BEGIN: &str = "
    local seen = redis.call('HMGET', KEYS[1], 'token', 'done')
    if seen[2] then return 'done' end
    if tonumber(seen[1] or 0) > tonumber(ARGV[1]) then return 'stale' end
    local now = redis.call('TIME')
    local early = tonumber(ARGV[4]) - math.floor(now[1] * 1000 + now[2] / 1000)
    if early > 0 then return string.format('early %.0f', early) end
    redis.call('HSET', KEYS[1], 'token', ARGV[1], 'by', ARGV[2])
    redis.call('EXPIRE', KEYS[1], ARGV[3])
    return tostring(redis.call('HINCRBY', KEYS[1], 'attempts', 1))";

/// The report and the mark that it is done, both or neither.
const FINISH: &str = "
    local seen = redis.call('HMGET', KEYS[1], 'token', 'done')
    if seen[2] or seen[1] ~= ARGV[1] then return 'stale' end
    local now = redis.call('TIME')
    redis.call('HSET', KEYS[1], 'done', string.format('%.0f', now[1] * 1000 + now[2] / 1000))
    redis.call('RPUSH', KEYS[2], ARGV[2])
    redis.call('EXPIRE', KEYS[2], ARGV[3])
    return 'done'";

/// The record of one period.
pub(crate) struct Record {
    connection: MultiplexedConnection,
    keys: [String; 2],
}

/// The keys of a record and of the reports: of one hash slot, for the scripts write both.
pub(crate) fn keys(job: &str, period: u64) -> [String; 2] {
    let job = format!("jobs:{{{job}}}");
    [format!("{job}:period:{period}"), format!("{job}:reports")]
}

/// What the record says to who has the lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It is to be done; this is the n-th attempt.
    Attempt(u32),
    /// Somebody has done it.
    Done,
    /// Its period begins so much later.
    Early(Duration),
}

impl Record {
    /// Connects anew: an attempt after an outage does not begin with the connection that broke in it.
    pub(crate) async fn open(store: &redis::Client, job: &str, period: u64) -> Result<Self> {
        Ok(Record {
            connection: store.get_multiplexed_async_connection().await?,
            keys: keys(job, period),
        })
    }

    /// Notes an attempt, unless the period is done, or begins later than now; `begins` is since 1970.
    pub(crate) async fn begin(
        &mut self,
        token: FencingToken,
        by: &str,
        begins: Duration,
    ) -> Result<Begun> {
        let reply = self.run(BEGIN, token, by, begins).await?;
        Ok(match reply.split_once(' ') {
            Some((_, early)) => Begun::Early(Duration::from_millis(early.parse()?)),
            None if reply == "done" => Begun::Done,
            None => Begun::Attempt(reply.parse()?),
        })
    }

    /// Stores the report, and with it that the period is done.
    pub(crate) async fn finish(&mut self, token: FencingToken, report: &str) -> Result<()> {
        self.run(FINISH, token, report, Duration::ZERO).await?;
        Ok(())
    }

    async fn run(
        &mut self,
        script: &str,
        token: FencingToken,
        text: &str,
        begins: Duration,
    ) -> Result<String> {
        let mut eval = redis::cmd("EVAL");
        eval.arg(script).arg(2).arg(&self.keys);
        eval.arg(token.get()).arg(text).arg(KEPT.as_secs());
        eval.arg(u64::try_from(begins.as_millis())?);
        let reply: String = eval.query_async(&mut self.connection).await?;
        if reply == "stale" {
            bail!(
                "{} refuses token {token}: somebody else has begun since",
                self.keys[0]
            );
        }
        Ok(reply)
    }
}
