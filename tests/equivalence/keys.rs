//! The keys of a lock in Redis, read and written without the clients.

use std::collections::HashMap;
use std::time::Duration;

use distlock_tests::{Reply, Resp};

use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::once::Record;
use crate::store::memory::hooks::{
    EntrySnapshot, HoldSnapshot, RecordSnapshot, ShareSnapshot, Snapshot,
};
use crate::util::clock::ServerTime;

/// The start of every script: the keys of a lock, whose two in the middle have each other's names
/// for a counted lock, and of its success records. The first argument is 1 for a lock that a script
/// makes a counted one.
const START: &str = "
    local lock, queue, entries, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
    local function kind(key) return redis.call('TYPE', key).ok end
    local counted = kind(lock) == 'hash' or kind(queue) == 'hash' or kind(entries) == 'zset' or ARGV[1] == '1'
    if counted then queue, entries = entries, queue end
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    local function state() return redis.call('HGET', lock, 'state') end
    local function shift(number, by) return string.format('%.0f', number + by) end
";

/// Reads all keys at one instant.
const READ: &str = "
    return { string.format('%.0f', now),
        counted and '' or redis.call('GET', lock) or '', redis.call('PTTL', lock),
        redis.call('ZRANGE', queue, 0, -1, 'WITHSCORES'), redis.call('PTTL', queue),
        redis.call('HGETALL', entries), redis.call('PTTL', entries),
        redis.call('GET', fence) or '', redis.call('PTTL', fence),
        counted and redis.call('HGETALL', lock) or {},
        redis.call('GET', KEYS[5]) or '', redis.call('PTTL', KEYS[5]),
        redis.call('GET', KEYS[6]) or '', redis.call('PTTL', KEYS[6]) }";

/// Adds entries to a queue: arguments are their time (ms), the rest of an entry, the owners.
const ENTER: &str = "
    local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2] or 0
    local order = math.max(now, last + 1)
    local entry = string.format('%.0f %s', now + ARGV[2] * 1000, ARGV[3])
    local last_token = redis.call('GET', fence)
    if last_token and string.sub(last_token, -1) ~= '+' then
        redis.call('SET', fence, last_token .. '+', 'KEEPTTL')
    end
    for i = 4, #ARGV do
        redis.call('ZADD', queue, string.format('%.0f', order + i), ARGV[i])
        redis.call('HSET', entries, ARGV[i], entry)
    end
    local keep = ARGV[2] + 11000
    for _, key in ipairs({ queue, entries }) do
        if redis.call('PTTL', key) < keep then redis.call('PEXPIRE', key, keep) end
    end";

/// Sets the deadline of an owner's entry into the past.
const LAPSE: &str = "
    local entry = redis.call('HGET', entries, ARGV[2])
    redis.call('HSET', entries, ARGV[2], (string.gsub(entry, '^%d+', '1')))";

/// Sets the last token an hour ahead of the server's clock.
const AHEAD: &str = "
    local token = string.format('%.0f', (time[1] + 3600) * 1000000 + time[2])
    local mark = redis.call('EXISTS', queue) == 1 and '+' or ''
    redis.call('SET', fence, token .. mark, 'EX', 3 * 3600)";

/// Sets the end of an owner's hold to now.
const EXPIRE: &str = "
    local record = redis.call('HGET', lock, ARGV[2])
    redis.call('HSET', lock, ARGV[2], (string.gsub(record, '^(%l) %d+', '%1 ' .. shift(now, 0))),
        'state', (string.gsub(state(), '%d+ (%d+)$', shift(now, 0) .. ' %1')))";

/// Makes all times of a counted lock an hour later.
const STEP_BACK: &str = "
    if not counted then return 0 end
    local fields = redis.call('HGETALL', lock)
    for i = 1, #fields, 2 do
        local function later(time) return shift(time, 3600000000) end
        local value
        if fields[i] == 'state' then
            value = string.gsub(fields[i + 1], '(%d+) (%d+)$', function(a, b) return later(a) .. ' ' .. later(b) end)
        else
            local function of_live(flag, expires) return tonumber(expires) > now and flag .. ' ' .. later(expires) or nil end
            value = string.gsub(fields[i + 1], '^(%l) (%d+)', of_live)
        end
        redis.call('HSET', lock, fields[i], value)
    end
    redis.call('PEXPIRE', lock, 2 * 3600 * 1000)";

/// Lets the last grant to a client expire unconfirmed.
const SILENCE: &str = "
    if redis.call('EXISTS', queue) == 1 then redis.call('HSET', entries, '?' .. ARGV[2], '1') end";

/// Removes what the next acquire of a free lock removes: the mark of an ended queue, and expired
/// holders. With either of these, several locks are not acquired in one step.
const TIDY: &str = "
    local last_token = redis.call('GET', fence)
    if last_token and string.sub(last_token, -1) == '+' and redis.call('EXISTS', queue) == 0 then
        redis.call('SET', fence, string.sub(last_token, 1, -2), 'KEEPTTL')
    end
    if kind(lock) ~= 'hash' then return end
    for _, record in ipairs(redis.call('HVALS', lock)) do
        if tonumber(string.match(record, '^%l (%d+)') or 0) > now then return end
    end
    redis.call('DEL', lock)";

/// Shifts the acquisition of the hold of a mutex by some hours.
const SHIFT_HOLD: &str = "
    local start, since, name = string.match(not counted and redis.call('GET', lock) or '', '^(2 %S+ %d+ %d+ )(%d+)( .*)$')
    if start then redis.call('SET', lock, start .. shift(since, ARGV[2] * 3600000000) .. name, 'KEEPTTL') end";

/// Shifts the acquisitions in the success records by some hours.
const SHIFT_RECORDS: &str = "
    for i = 5, 6 do
        local since, rest = string.match(redis.call('GET', KEYS[i]) or '', '^1 (%d+)( .*)$')
        if since then redis.call('SET', KEYS[i], '1 ' .. shift(since, ARGV[2] * 3600000000) .. rest, 'KEEPTTL') end
    end";

/// The selectors of success records.
pub(super) const SELECTORS: [&str; 2] = ["", "value"];

pub(super) struct Keys([String; 6]);

impl Keys {
    pub(super) fn new(namespace: &str, key: &LockKey) -> Self {
        let name = |kind: &str| format!("{namespace}:{kind}:{}", key.tagged());
        let [lock, queue, entry, fence] = ["lock", "queue", "entry", "fence"].map(name);
        let [period, value] = SELECTORS.map(|selector| name(&format!("done:{selector}")));
        Keys([lock, queue, entry, fence, period, value])
    }

    pub(super) fn delete_holds(&self, redis: &mut Resp) {
        redis.cmd(&["DEL", &self.0[0]]).int();
    }

    pub(super) fn delete_all(&self, redis: &mut Resp) {
        let [lock, queue, entry, fence, period, value] = &self.0;
        let command = ["DEL", lock, queue, entry, fence, period, value];
        redis.cmd(&command).int();
    }

    /// Adds entries. `rest` is the part of the entry after the deadline.
    pub(super) fn enter(
        &self,
        redis: &mut Resp,
        left: Duration,
        is_counted: bool,
        rest: &str,
        owners: &[String],
    ) {
        let (left, is_counted) = (
            left.as_millis().to_string(),
            u8::from(is_counted).to_string(),
        );
        let mut arguments = vec![is_counted.as_str(), left.as_str(), rest];
        arguments.extend(owners.iter().map(String::as_str));
        self.run(redis, ENTER, &arguments);
    }

    pub(super) fn lapse(&self, redis: &mut Resp, owner: &str) {
        self.run(redis, LAPSE, &["0", owner]);
    }

    pub(super) fn expire(&self, redis: &mut Resp, owner: &str) {
        self.run(redis, EXPIRE, &["0", owner]);
    }

    pub(super) fn step_back(&self, redis: &mut Resp) {
        self.run(redis, STEP_BACK, &[]);
    }

    pub(super) fn silence(&self, redis: &mut Resp, client: &str) {
        self.run(redis, SILENCE, &["0", client]);
    }

    pub(super) fn ahead(&self, redis: &mut Resp) {
        self.run(redis, AHEAD, &[]);
    }

    pub(super) fn tidy(&self, redis: &mut Resp) {
        self.run(redis, TIDY, &[]);
    }

    pub(super) fn shift_hold(&self, redis: &mut Resp, hours: i64) {
        self.run(redis, SHIFT_HOLD, &["0", &hours.to_string()]);
    }

    pub(super) fn shift_records(&self, redis: &mut Resp, hours: i64) {
        self.run(redis, SHIFT_RECORDS, &["0", &hours.to_string()]);
    }

    fn run(&self, redis: &mut Resp, script: &str, arguments: &[&str]) -> Reply {
        let script = format!("{START}{script}");
        let mut command = vec!["EVAL", &script, "6"];
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
        let entries: HashMap<_, _> = pairs(&reply[5])
            .filter(|(owner, _)| !owner.starts_with('?'))
            .collect();
        let fields: HashMap<_, _> = pairs(&reply[9]).collect();
        let (shares, kind, phase) = shares(fields, now);
        let entry = |(owner, _): (&str, &str)| {
            let text = entries[owner];
            let [deadline, ttl, kind, capacity, weight, name] = words(text, 6)[..] else {
                panic!("the entry of {owner}: {text:?}");
            };
            EntrySnapshot {
                owner: owner.to_owned(),
                kind: kind_of(kind, capacity),
                weight: number(weight).try_into().unwrap(),
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
        let record = |(n, selector): (usize, &&str)| {
            let value = text(10 + 2 * n).strip_prefix("1 ")?;
            let [since, gap, token, finished, name] = words(value, 5)[..] else {
                panic!("the record: {value}");
            };
            Some(RecordSnapshot {
                selector: (*selector).to_owned(),
                record: Record {
                    since: ServerTime(number(since)),
                    gap: millis(gap),
                    token: FencingToken::new(number(token)),
                    finished: ServerTime(number(finished)),
                    holder_name: name.to_owned(),
                },
                left: left(11 + 2 * n),
            })
        };
        Snapshot {
            records: SELECTORS.iter().enumerate().filter_map(record).collect(),
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
            shares,
            kind,
            phase,
            // Both keys form the queue.
            queue_left: left(4).min(if queue.is_empty() { left(4) } else { left(6) }),
            queue,
            fence: fence
                .trim_end_matches('+')
                .parse()
                .ok()
                .map(FencingToken::new),
            fence_left: left(8),
        }
    }
}

/// The holds of a counted lock, their kind and their phase.
type Shares = (Vec<ShareSnapshot>, Option<LockKind>, Option<FencingToken>);

/// Reads the fields of a counted lock, and checks its sum and its bounds.
fn shares(mut fields: HashMap<&str, &str>, now: u64) -> Shares {
    let Some(state) = fields.remove("state") else {
        assert!(fields.is_empty(), "holders without a state: {fields:?}");
        return (Vec::new(), None, None);
    };
    let ["3", kind, capacity, used, phase, next_expiry, at] = words(state, 7)[..] else {
        panic!("the state: {state}");
    };
    let (mut sum, mut shares) = (0, Vec::new());
    for (owner, record) in fields {
        let [flag, expires, ttl, token, weight, since, name] = words(record, 7)[..] else {
            panic!("the record of {owner}: {record}");
        };
        sum += number(weight);
        assert!(
            next_expiry <= expires,
            "a hold ends before {next_expiry}: {record}"
        );
        let written = number(expires).saturating_sub(number(ttl) * 1_000);
        assert!(
            written <= number(at),
            "a record is newer than {at}: {record}"
        );
        shares.push(ShareSnapshot {
            owner: owner.to_owned(),
            weight: number(weight).try_into().unwrap(),
            // A grant that is not confirmed is a hold.
            flag: flag.replace('g', "h").parse().unwrap(),
            token: FencingToken::new(number(token)),
            since: number(since),
            name: name.to_owned(),
            left: Duration::from_micros(number(expires).saturating_sub(now)),
        });
    }
    assert_eq!(number(used), sum, "the sum of the weights: {state}");
    assert!(sum <= number(capacity), "too much is held: {state}");
    shares.sort_by(|a, b| a.owner.cmp(&b.owner));
    let (phase, _) = phase.split_once(':').unwrap_or((phase, ""));
    let phase = Some(number(phase)).filter(|phase| *phase > 0);
    (
        shares,
        Some(kind_of(kind, capacity)),
        phase.map(FencingToken::new),
    )
}

fn kind_of(kind: &str, capacity: &str) -> LockKind {
    match kind {
        "mutex" => LockKind::Mutex,
        "rw" => LockKind::ReadWrite,
        _ => LockKind::Semaphore {
            permits: capacity.parse().unwrap(),
        },
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
