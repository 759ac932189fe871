//! The keys of a lock in Redis, read and written without the clients.

use std::collections::HashMap;
use std::time::Duration;

use distlock_tests::{Reply, Resp};

use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::store::memory::hooks::{EntrySnapshot, HoldSnapshot, Snapshot};

/// Reads all keys at one instant.
const READ: &str = "
    local time = redis.call('TIME')
    return { string.format('%.0f', time[1] * 1000000 + time[2]),
        redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]),
        redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), redis.call('PTTL', KEYS[2]),
        redis.call('HGETALL', KEYS[3]), redis.call('PTTL', KEYS[3]),
        redis.call('GET', KEYS[4]) or '', redis.call('PTTL', KEYS[4]) }";

/// Adds entries to a queue: arguments are their time (ms), the rest of an entry, the owners.
const ENTER: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    local last = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or 0
    local order = math.max(now, math.abs(last) + 1)
    local entry = string.format('%.0f %s', now + ARGV[1] * 1000, ARGV[2])
    local last_token = redis.call('GET', KEYS[4])
    if last_token and string.sub(last_token, -1) ~= '+' then
        redis.call('SET', KEYS[4], last_token .. '+', 'KEEPTTL')
    end
    for i = 3, #ARGV do
        redis.call('ZADD', KEYS[2], string.format('%.0f', order + i), ARGV[i])
        redis.call('HSET', KEYS[3], ARGV[i], entry)
    end
    local keep = ARGV[1] + 11000
    for i = 2, 3 do
        if redis.call('PTTL', KEYS[i]) < keep then redis.call('PEXPIRE', KEYS[i], keep) end
    end";

/// Sets the deadline of an owner's entry into the past.
const LAPSE: &str = "
    local entry = redis.call('HGET', KEYS[3], ARGV[1])
    redis.call('HSET', KEYS[3], ARGV[1], (string.gsub(entry, '^%d+', '1')))";

/// Sets the last token an hour ahead of the server's clock.
const AHEAD: &str = "
    local time = redis.call('TIME')
    local token = string.format('%.0f', (time[1] + 3600) * 1000000 + time[2])
    local mark = redis.call('EXISTS', KEYS[2]) == 1 and '+' or ''
    redis.call('SET', KEYS[4], token .. mark, 'EX', 3 * 3600)";

pub(super) struct Keys([String; 4]);

impl Keys {
    pub(super) fn new(namespace: &str, key: &LockKey) -> Self {
        let name = |kind| format!("{namespace}:{kind}:{}", key.tagged());
        Keys(["lock", "queue", "entry", "fence"].map(name))
    }

    pub(super) fn delete_hold(&self, redis: &mut Resp) {
        redis.cmd(&["DEL", &self.0[0]]).int();
    }

    pub(super) fn delete_all(&self, redis: &mut Resp) {
        let [lock, queue, entry, fence] = &self.0;
        redis.cmd(&["DEL", lock, queue, entry, fence]).int();
    }

    /// Adds entries. `rest` is the part of the entry after the deadline.
    pub(super) fn enter(&self, redis: &mut Resp, left: Duration, rest: &str, owners: &[String]) {
        let left = left.as_millis().to_string();
        let mut arguments = vec![left.as_str(), rest];
        arguments.extend(owners.iter().map(String::as_str));
        self.run(redis, ENTER, &arguments);
    }

    pub(super) fn lapse(&self, redis: &mut Resp, owner: &str) {
        self.run(redis, LAPSE, &[owner]);
    }

    pub(super) fn ahead(&self, redis: &mut Resp) {
        self.run(redis, AHEAD, &[]);
    }

    fn run(&self, redis: &mut Resp, script: &str, arguments: &[&str]) -> Reply {
        let mut command = vec!["EVAL", script, "4"];
        command.extend(self.0.iter().map(String::as_str));
        command.extend(arguments);
        let reply = redis.cmd(&command);
        assert!(!reply.is_error(), "{command:?}: {reply:?}");
        reply
    }

    pub(super) fn read(&self, redis: &mut Resp) -> Snapshot {
        let reply = self.run(redis, READ, &[]);
        let reply = reply.array();
        let text = |i: usize| reply[i].text().unwrap();
        // A missing key has no time left, and an existing key must have some.
        let left = |i: usize| match reply[i].int() {
            -2 => Duration::ZERO,
            ms => millis(&ms.to_string()),
        };
        let now = number(text(0));
        let value = text(1);
        let lock = words(value.strip_prefix("2 ").unwrap_or(value), 5);
        let entries: HashMap<_, _> = pairs(&reply[5]).collect();
        let entry = |(owner, order): (&str, &str)| {
            let [deadline, lease, ttl, name] = words(entries[owner], 4)[..] else {
                panic!("the entry of {owner}: {:?}", entries[owner]);
            };
            EntrySnapshot {
                owner: owner.to_owned(),
                marked: order.starts_with('-'),
                lease: millis(lease),
                ttl: millis(ttl),
                name: name.to_owned(),
                left: Duration::from_micros(number(deadline).saturating_sub(now)),
            }
        };
        let queue: Vec<_> = pairs(&reply[3]).map(entry).collect();
        assert_eq!(
            queue.len(),
            entries.len(),
            "entries without a place: {entries:?}"
        );
        // A client that finds no mark does not check the queue.
        let fence = text(7);
        assert!(
            queue.is_empty() || fence.is_empty() || fence.ends_with('+'),
            "a queue, and an unmarked fence: {fence}"
        );
        Snapshot {
            hold: match lock[..] {
                [owner, token, limit, since, name] => Some(HoldSnapshot {
                    owner: owner.to_owned(),
                    token: FencingToken::new(number(token)),
                    limit: millis(limit),
                    since: number(since),
                    name: name.to_owned(),
                    left: left(2),
                }),
                _ => None,
            },
            queue,
            // Both keys form the queue.
            queue_left: left(4).min(left(6)),
            fence: fence
                .trim_end_matches('+')
                .parse()
                .ok()
                .map(FencingToken::new),
            fence_left: left(8),
        }
    }
}

/// Splits a lock's value or an entry. The last part is a client's name, which may have spaces.
fn words(value: &str, count: usize) -> Vec<&str> {
    value.splitn(count, ' ').collect()
}

fn pairs(reply: &Reply) -> impl Iterator<Item = (&str, &str)> {
    let items = reply.array().chunks(2);
    items.map(|pair| (pair[0].text().unwrap(), pair[1].text().unwrap()))
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

fn millis(text: &str) -> Duration {
    Duration::from_millis(number(text))
}
