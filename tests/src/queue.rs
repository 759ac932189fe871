//! Long queues, written without the clients that wait in them.

use crate::Resp;

/// The number of entries that one script adds.
const CHUNK: usize = 10_000;

/// Appends the entries of a client with the numbers from `ARGV[2]` on, as its acquires would.
const FILL: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2] or 0
    local order = math.max(now, last + 1)
    local entry = string.format('%.0f 1250 mutex 1 1 name', now + 60000000)
    for i = ARGV[2], ARGV[2] + ARGV[3] - 1 do
        redis.call('ZADD', KEYS[1], string.format('%.0f', order + i), ARGV[1] .. ':' .. i)
        redis.call('HSET', KEYS[2], ARGV[1] .. ':' .. i, entry)
    end
    redis.call('PEXPIRE', KEYS[1], 72000)
    redis.call('PEXPIRE', KEYS[2], 72000)";

/// Appends `count` entries of one client to the queue of a mutex, each with a `wait` of a minute.
///
/// # Panics
///
/// Panics if the server rejects them.
pub fn fill_queue(
    raw: &mut Resp,
    [queue, entries]: [&str; 2],
    client: &str,
    first: usize,
    count: usize,
) {
    for first in (first..first + count).step_by(CHUNK) {
        let (first, count) = (first.to_string(), count.min(CHUNK).to_string());
        let words = ["EVAL", FILL, "2", queue, entries, client, &first, &count];
        let reply = raw.cmd(&words);
        assert!(!reply.is_error(), "{reply:?}");
    }
}
