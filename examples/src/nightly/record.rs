//! A record for each period, which shows whether it is done. Only the newest holder may write it.
//!
//! In a service it is a row of the job's database, and `finish` is part of the job's transaction.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use distlock::FencingToken;
use redis::aio::MultiplexedConnection;

/// Longer than any replica checks whether a period is done.
const RECORD_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// Reading is the first access with this token: the record rejects all older ones from here on.
const BEGIN: &str = "
    local record = redis.call('HMGET', KEYS[1], 'token', 'done')
    if record[2] then return 0 end
    if tonumber(record[1] or 0) > tonumber(ARGV[1]) then return -1 end
    redis.call('HSET', KEYS[1], 'token', ARGV[1], 'by', ARGV[2])
    redis.call('EXPIRE', KEYS[1], ARGV[3])
    return redis.call('HINCRBY', KEYS[1], 'attempts', 1)";

/// Writes the report and the mark that it is done, both or neither.
const FINISH: &str = "
    local record = redis.call('HMGET', KEYS[1], 'token', 'done')
    if record[2] or record[1] ~= ARGV[1] then return -1 end
    local now = redis.call('TIME')
    redis.call('HSET', KEYS[1], 'done', string.format('%.0f', now[1] * 1000 + now[2] / 1000))
    redis.call('RPUSH', KEYS[2], ARGV[2])
    redis.call('EXPIRE', KEYS[2], ARGV[3])
    return 0";

/// The keys of a record and of the reports. They share a hash slot, because a script writes both.
pub(crate) fn keys(job: &str, period: u64) -> [String; 2] {
    let job = format!("jobs:{{{job}}}");
    [format!("{job}:period:{period}"), format!("{job}:reports")]
}

/// The record of one period.
pub(crate) struct Record {
    connection: MultiplexedConnection,
    keys: [String; 2],
}

impl Record {
    pub(crate) fn new(connection: MultiplexedConnection, job: &str, period: u64) -> Self {
        Record {
            connection,
            keys: keys(job, period),
        }
    }

    /// Records an attempt and returns its number, or `None` if the period is done.
    pub(crate) async fn begin(&mut self, token: FencingToken, by: &str) -> Result<Option<u32>> {
        let attempt = self.run(BEGIN, token, by).await?;
        Ok(Some(attempt).filter(|attempt| *attempt > 0))
    }

    /// Stores the report, and with it that the period is done.
    pub(crate) async fn finish(&mut self, token: FencingToken, report: &str) -> Result<()> {
        self.run(FINISH, token, report).await?;
        Ok(())
    }

    async fn run(&mut self, script: &str, token: FencingToken, text: &str) -> Result<u32> {
        let mut eval = redis::cmd("EVAL");
        eval.arg(script).arg(2).arg(&self.keys);
        eval.arg(token.get()).arg(text).arg(RECORD_TTL.as_secs());
        let reply: i64 = eval.query_async(&mut self.connection).await?;
        let record = &self.keys[0];
        ensure!(
            reply >= 0,
            "{record} rejects token {token}: a later holder has begun since"
        );
        u32::try_from(reply).context("too many attempts")
    }
}
