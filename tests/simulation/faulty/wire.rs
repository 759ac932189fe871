//! The encoding of commands and replies as in `lua/`, written independently of the code under test.

use std::time::Duration;

use once_cell::sync::Lazy;
use redis::{Arg, Cmd, RedisError, Value};

use super::op::{Answer, Op, RenewedHold};
use super::server::Applied;
use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{CheckQueue, CheckQueueReply, Confirmation, Grant, OwnerId};
use crate::protocol::once::{Once, Record};
use crate::protocol::timing::Timing;
use crate::store::client_id::ClientId;
use crate::store::memory::hooks::{Snapshot, owner_text};
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::wire::scripts::{Script, ScriptForm, ScriptId, Scripts};

pub(super) const NAMESPACE: &str = "distlock";
const CHANNELS: &str = "distlock:client:";
const FENCE_TTL: &str = "7200000";
const MAX_WAITERS: &str = "10000";

/// The reply to a write, from a server without a disk.
pub(super) const REFUSAL: &str = "MISCONF errors writing to disk";

pub(crate) static CONFIG: Lazy<RedisConfig> = Lazy::new(|| {
    RedisConfig::parse("redis://simulated", NAMESPACE, Duration::from_secs(2)).unwrap()
});

/// A parsed command.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Ping,
    /// `Commands` connections request all of it.
    Info {
        all: bool,
    },
    Subscribe(ClientId),
    Run {
        hash: String,
        by_hash: bool,
        what: Run,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Run {
    Probe,
    Op(ClientId, Op),
}

/// The scripts of mutexes that clients run.
const SENT: [ScriptId; 8] = [
    ScriptId::Acquire,
    ScriptId::AcquireAll,
    ScriptId::Confirm,
    ScriptId::Renew,
    ScriptId::Release,
    ScriptId::CheckQueue,
    ScriptId::Inspect,
    ScriptId::Probe,
];

/// Those with a variant for calls that run at most once per period.
const ONCE: [ScriptId; 3] = [ScriptId::Acquire, ScriptId::Confirm, ScriptId::Release];

/// The scripts of counted locks that clients run.
const COUNTED: [ScriptId; 6] = [
    ScriptId::Acquire,
    ScriptId::Confirm,
    ScriptId::Renew,
    ScriptId::Downgrade,
    ScriptId::Release,
    ScriptId::CheckQueue,
];

/// The words of a command, from front to back.
struct Words<'a>(std::vec::IntoIter<&'a str>);

impl<'a> Words<'a> {
    fn of(command: &'a Cmd) -> Self {
        let words: Vec<_> = command
            .args_iter()
            .map(|word| match word {
                Arg::Simple(word) => std::str::from_utf8(word).unwrap(),
                other => panic!("{other:?} in a command"),
            })
            .collect();
        Words(words.into_iter())
    }

    fn next(&mut self) -> &'a str {
        self.0.next().expect("a command that is too short")
    }

    fn number(&mut self) -> u64 {
        self.next().parse().unwrap()
    }

    fn millis(&mut self) -> Duration {
        Duration::from_millis(self.number())
    }

    fn expect(&mut self, word: &str) {
        assert_eq!(self.next(), word);
    }

    fn end(mut self) {
        assert_eq!(self.0.next(), None, "a command that is too long");
    }

    /// Parses `client:number`.
    fn owner(&mut self) -> (ClientId, OwnerId) {
        owner(self.next())
    }

    /// Parses `2 client:number `, the start of a lock's value.
    fn start_of_value(&mut self) -> (ClientId, OwnerId) {
        let text = self.next().strip_prefix("2 ");
        owner(text.and_then(|text| text.strip_suffix(' ')).unwrap())
    }

    /// Parses the key of the success record of a lock, if there must be one.
    fn record(&mut self, key: &LockKey, is_once: bool) {
        if is_once {
            self.expect(&format!("{NAMESPACE}:done::{}", key.tagged()));
        }
    }

    /// Parses the keys of one lock, one for each kind.
    fn lock(&mut self, kinds: &[&str]) -> LockKey {
        let mut found: Option<&str> = None;
        for kind in kinds {
            let name = self.next();
            let tag = (name.strip_prefix(NAMESPACE)).and_then(|name| {
                name.strip_prefix(':')?
                    .strip_prefix(kind)?
                    .strip_prefix(':')
            });
            let tag = tag.unwrap_or_else(|| panic!("{name} is no {kind}"));
            assert_eq!(*found.get_or_insert(tag), tag, "keys of two locks");
        }
        let tag = found.unwrap();
        let key = tag.strip_prefix('{').and_then(|tag| tag.strip_suffix('}'));
        LockKey::new(key.unwrap()).unwrap()
    }
}

fn owner(text: &str) -> (ClientId, OwnerId) {
    let (client, number) = text.split_once(':').unwrap();
    (ClientId::from_str(client), OwnerId(number.parse().unwrap()))
}

/// Returns what a call does at most once per period.
fn once(gap: &str, ttl: &str) -> Once {
    let millis = |text: &str| Duration::from_millis(text.parse().unwrap());
    Once {
        gap: millis(gap),
        ttl: millis(ttl),
        selector: String::new(),
    }
}

/// The keys that scripts have. They make the others from these.
const DECLARED: &[&str] = &["lock", "fence"];

/// Splits an argument of which a call that runs at most once has a second line.
fn lines(argument: &str, is_once: bool) -> (&str, Option<&str>) {
    let lines = argument.split_once('\n');
    assert_eq!(lines.is_some(), is_once, "{argument}");
    lines.map_or((argument, None), |(first, second)| (first, Some(second)))
}

/// Parses `kind capacity weight`.
fn kind(text: &str) -> Kind {
    let [name, capacity, weight] = text.split(' ').collect::<Vec<_>>()[..] else {
        panic!("a kind that is not three words");
    };
    let [capacity, weight] = [capacity, weight].map(|number| number.parse().unwrap());
    match (name, capacity, weight) {
        ("rw", 1_000, 1) => Kind::Read,
        ("rw", 1_000, 1_000) => Kind::Write,
        ("permits", permits, weight) => Kind::Permits { permits, weight },
        _ => panic!("no kind: {text}"),
    }
}

/// Returns the timing with this TTL.
fn timing(ttl: Duration) -> Timing {
    let timing = Timing::new(ttl - Duration::from_millis(250));
    assert_eq!(timing.ttl(), ttl, "no such short lease");
    timing
}

/// Returns the client that receives the grants on a channel.
pub(super) fn listener(channel: &str) -> ClientId {
    ClientId::from_str(channel.strip_prefix(CHANNELS).unwrap())
}

pub(super) fn read(command: &Cmd) -> Request {
    let mut words = Words::of(command);
    let request = match words.next() {
        "PING" => Request::Ping,
        "INFO" => match words.0.next() {
            None => Request::Info { all: true },
            Some("server") => Request::Info { all: false },
            section => panic!("INFO {section:?}"),
        },
        "EVALSHA" => return run(words, true),
        "EVAL" => return run(words, false),
        other => panic!("{other}"),
    };
    words.end();
    request
}

fn run(mut words: Words<'_>, by_hash: bool) -> Request {
    let named = words.next();
    let scripts = Scripts::bundled();
    let is = |script: &Script| {
        let name = if by_hash {
            &script.hash
        } else {
            &script.source
        };
        named == name
    };
    let all = [
        (ScriptForm::Once, &ONCE[..]),
        (ScriptForm::Counted, &COUNTED),
        (ScriptForm::Mutex, &SENT),
    ];
    let mut all = (all.iter()).flat_map(|(form, ids)| {
        let scripts = &scripts;
        ids.iter()
            .map(move |id| (*form, *id, scripts.in_form(*form, *id)))
    });
    let known = all.find(|(_, _, script)| is(script));
    let (form, script, Script { hash, .. }) =
        known.unwrap_or_else(|| panic!("no client sends this: {named}"));
    let keys = words.number();
    let what = match (keys, script) {
        (1, ScriptId::Probe) => {
            words.expect("distlock:probe");
            Run::Probe
        }
        (_, verb) => {
            let (client, op) = op(&mut words, verb, keys, form);
            Run::Op(client, op)
        }
    };
    words.end();
    Request::Run {
        hash: hash.clone(),
        by_hash,
        what,
    }
}

fn op(words: &mut Words<'_>, verb: ScriptId, keys: u64, form: ScriptForm) -> (ClientId, Op) {
    let is_once = form == ScriptForm::Once;
    let any_kind = if form == ScriptForm::Counted {
        Kind::Read
    } else {
        Kind::Mutex
    };
    match verb {
        ScriptId::Acquire => {
            assert_eq!(keys, 2 + u64::from(is_once));
            let key = words.lock(DECLARED);
            words.record(&key, is_once);
            let (client, owner) = words.start_of_value();
            let (rest, once_numbers) = lines(words.next(), is_once);
            let rest: Vec<_> = rest.split(' ').collect();
            let [apply_by, wait, MAX_WAITERS] = rest[..] else {
                panic!("the arguments of an acquire: {rest:?}");
            };
            let wait = Duration::from_millis(wait.parse().unwrap());
            let timing = timing(words.millis());
            words.expect(FENCE_TTL);
            let apply_by = apply_by.parse().unwrap();
            let _name = words.next();
            let kind = if form == ScriptForm::Counted {
                kind(words.next())
            } else {
                Kind::Mutex
            };
            let once = once_numbers.map(|numbers| {
                let (gap, ttl) = numbers.split_once(' ').unwrap();
                once(gap, ttl)
            });
            let op = Op::Acquire {
                kind,
                once,
                key,
                owner,
                timing,
                wait,
                apply_by,
            };
            (client, op)
        }
        ScriptId::AcquireAll => {
            let keys = (0..keys / 3).map(|_| words.lock(&["lock", "queue", "fence"]));
            let keys: Vec<_> = keys.collect();
            let timing = timing(words.millis());
            let apply_by = words.number();
            words.expect(FENCE_TTL);
            let _name = words.next();
            let mut sender = None;
            let locks = keys.into_iter().map(|key| {
                let (client, owner) = words.owner();
                assert_eq!(*sender.get_or_insert(client.clone()), client);
                (key, owner)
            });
            let locks = locks.collect();
            let op = Op::AcquireAll {
                locks,
                timing,
                apply_by,
            };
            (sender.unwrap(), op)
        }
        ScriptId::Confirm => {
            assert_eq!(keys, 1 + u64::from(is_once));
            let key = words.lock(&["lock"]);
            words.record(&key, is_once);
            let (client, owner) = words.owner();
            let timing = timing(words.millis());
            let once = is_once.then(|| once(words.next(), "0"));
            let op = Op::Confirm {
                kind: any_kind,
                key,
                owner,
                timing,
                once,
            };
            (client, op)
        }
        ScriptId::Renew => {
            let keys: Vec<_> = (0..keys).map(|_| words.lock(&["lock"])).collect();
            let mut sender = None;
            let renewals = keys.into_iter().map(|key| {
                let (of, token) = words.next().split_once(' ').unwrap();
                let (client, owner) = owner(of);
                assert_eq!(*sender.get_or_insert(client.clone()), client);
                RenewedHold {
                    kind: any_kind,
                    key,
                    owner,
                    token: FencingToken::new(token.parse().unwrap()),
                    timing: timing(words.millis()),
                }
            });
            let renewals = renewals.collect();
            (sender.unwrap(), Op::Renew(renewals))
        }
        ScriptId::Downgrade => {
            assert_eq!(keys, 2);
            let key = words.lock(DECLARED);
            let (client, owner) = words.owner();
            let token = FencingToken::new(words.number());
            let timing = timing(words.millis());
            words.expect(FENCE_TTL);
            let op = Op::Downgrade {
                key,
                owner,
                token,
                timing,
            };
            (client, op)
        }
        ScriptId::Release => {
            assert_eq!(keys, 2 + u64::from(is_once));
            let key = words.lock(DECLARED);
            words.record(&key, is_once);
            let (client, owner) = words.start_of_value();
            let (rest, success) = lines(words.next(), is_once);
            let (keep_for, rest) = rest.split_once(' ').unwrap();
            assert_eq!(rest, FENCE_TTL);
            let keep_for = Duration::from_millis(keep_for.parse().unwrap());
            let success = success.map(|numbers| {
                let [token, gap, ttl] = numbers.split(' ').collect::<Vec<_>>()[..] else {
                    panic!("a success that is not three numbers");
                };
                (once(gap, ttl), FencingToken::new(token.parse().unwrap()))
            });
            (
                client,
                Op::Release {
                    kind: any_kind,
                    success,
                    key,
                    owner,
                    keep_for,
                },
            )
        }
        ScriptId::CheckQueue => {
            let keys: Vec<_> = (0..keys / 2).map(|_| words.lock(DECLARED)).collect();
            let client = ClientId::from_str(words.next());
            words.expect(FENCE_TTL);
            words.expect("");
            let check = |key| {
                let owners = (0..words.number()).map(|_| {
                    let (owner_client, owner) = words.owner();
                    assert_eq!(owner_client, client);
                    owner
                });
                let owners = owners.collect();
                CheckQueue {
                    key,
                    kind: any_kind.lock_kind(),
                    owners,
                }
            };
            let checks = keys.into_iter().map(check).collect();
            (client, Op::CheckQueue(checks))
        }
        other => panic!("no client runs this: {other:?}"),
    }
}

/// The reply of a server: a value, or the text of an error.
pub(super) type Reply = Result<Value, String>;

/// Converts a reply to the type of the client library.
pub(super) fn into_redis_result(reply: Reply) -> Result<Value, RedisError> {
    reply.or_else(|error| {
        redis::parse_redis_value(format!("-{error}\r\n").as_bytes())?.extract_error()
    })
}

pub(super) fn text(text: impl Into<String>) -> Value {
    Value::BulkString(text.into().into_bytes())
}

fn number(number: impl TryInto<i64>) -> Value {
    Value::Int(number.try_into().unwrap_or(i64::MAX))
}

/// Encodes the state of a lock, or nothing for a free one.
fn state(lock: &Snapshot, wall: u64) -> Value {
    if lock.hold.is_some() {
        return text("2 0:1 1 1 1 name");
    }
    let Some(kind) = lock.kind else {
        return text("");
    };
    let kind = match kind {
        LockKind::Semaphore { permits } => format!("permits {permits}"),
        _ => "rw 1000".into(),
    };
    let used: u32 = lock.shares.iter().map(|share| share.weight).sum();
    let phase = lock.phase.map_or(0, FencingToken::get);
    let next = (lock.shares.iter())
        .map(|share| expires(share.left, wall))
        .min();
    text(format!(
        "3 {kind} {used} {phase} {} {wall}",
        next.unwrap_or(0)
    ))
}

fn expires(left: Duration, wall: u64) -> u64 {
    wall + u64::try_from(left.as_micros()).unwrap()
}

/// Encodes the holders of a lock, each with its record.
fn holders(lock: &Snapshot, wall: u64) -> Vec<Value> {
    let record = |flag, left: Duration, [token, weight, since]: [u64; 3], name: &str| {
        let (expires, ttl) = (expires(left, wall), left.as_millis());
        text(format!(
            "{flag} {expires} {ttl} {token} {weight} {since} {name}"
        ))
    };
    let mut fields = Vec::new();
    if let Some(hold) = &lock.hold {
        let numbers = [hold.token.get(), 1, hold.since];
        fields.push(text(&hold.owner));
        fields.push(record('h', hold.left, numbers, &hold.name));
    } else {
        fields.extend([text("state"), state(lock, wall)]);
    }
    for share in &lock.shares {
        let numbers = [share.token.get(), share.weight.into(), share.since];
        fields.push(text(&share.owner));
        fields.push(record(share.flag, share.left, numbers, &share.name));
    }
    fields
}

/// Encodes a success record.
fn encode(record: &Record) -> Value {
    let Record {
        since,
        gap,
        token,
        finished,
        holder_name: name,
    } = record;
    text(format!(
        "1 {} {} {token} {} {name}",
        since.0,
        gap.as_millis(),
        finished.0
    ))
}

pub(super) fn probed(wall: u64, refused: bool) -> Value {
    let error = refused.then(|| format!("DEL {REFUSAL}"));
    Value::Array(vec![number(wall), text(error.unwrap_or_default())])
}

/// Encodes the reply to an operation that was just applied.
pub(super) fn answer(applied: &Applied<'_>, wall: u64) -> Reply {
    use crate::protocol::messages::AcquireReply;
    let first = applied.effects.first();
    let occupied = |how: &str| {
        let mut reply = vec![text(how), number(wall)];
        if let Some((_, _, after)) = first {
            reply.push(state(after, wall));
            reply.extend(holders(after, wall));
        }
        reply
    };
    let fields = match (applied.op, applied.answer) {
        (Op::Renew(batch), Answer::Refused(_)) => refused_renewals(applied, batch),
        (Op::CheckQueue(checks), Answer::Refused(_)) => {
            let mut fields = vec![number(wall)];
            fields.extend(checks.iter().map(|_| text(REFUSAL)));
            fields
        }
        (_, Answer::Refused(error)) => return Err(error.detail.clone()),
        (_, Answer::Acquired(AcquireReply::Held(proof))) => {
            return Ok(text(format!("held {} {wall}", proof.token)));
        }
        (_, Answer::Acquired(AcquireReply::Queued(_))) => occupied("queued"),
        (_, Answer::Acquired(AcquireReply::Unfinished)) => occupied("unfinished"),
        (_, Answer::Acquired(AcquireReply::Busy(_))) => occupied("busy"),
        (_, Answer::Acquired(AcquireReply::Late)) => vec![text("late"), number(wall)],
        (_, Answer::Acquired(AcquireReply::Full(_))) => occupied("full"),
        (_, Answer::AllAcquired(Some(proof))) => return Ok(text(format!("held {}", proof.token))),
        (Op::AcquireAll { apply_by, .. }, Answer::AllAcquired(None)) => {
            let how = if wall > *apply_by { "late" } else { "busy" };
            vec![text(how), number(wall)]
        }
        (_, Answer::Confirmed(Confirmation::Held(proof))) => {
            vec![text("held"), number(wall), number(proof.token.get())]
        }
        (_, Answer::Confirmed(Confirmation::AlreadyRan(record))) => {
            vec![text("ran"), number(wall), encode(record)]
        }
        (_, Answer::Acquired(AcquireReply::AlreadyRan(record))) => {
            vec![text("ran"), number(wall), encode(record)]
        }
        (_, Answer::Confirmed(Confirmation::NotHeld)) => vec![text("not_held"), number(wall)],
        (_, Answer::Downgraded(Some(proof))) => {
            vec![
                text("held"),
                number(wall),
                number(proof.token.get()),
                number(0),
            ]
        }
        (_, Answer::Downgraded(None)) => vec![text("not_held"), number(wall)],
        (_, Answer::Renewed(renewed)) => (renewed.failures.iter())
            .map(|(index, _)| failure(*index, ""))
            .collect(),
        (
            _,
            Answer::Released {
                was_held,
                is_recorded,
            },
        ) => {
            let recorded = if *is_recorded { " recorded" } else { "" };
            let how = if *was_held { "released" } else { "not_held" };
            return Ok(text(format!("{how}{recorded}")));
        }
        (Op::CheckQueue(checks), Answer::Checked(replies)) => {
            let mut fields = vec![number(wall)];
            for ((check, reply), (_, _, after)) in checks.iter().zip(replies).zip(&applied.effects)
            {
                let CheckQueueReply::Checked {
                    missing, holding, ..
                } = reply
                else {
                    panic!("a memory store checked a queue, and: {reply:?}");
                };
                let indices = |owners: &[OwnerId]| {
                    let requested = check.owners.iter().enumerate();
                    let found = requested.filter(|(_, owner)| owners.contains(owner));
                    Value::Array(found.map(|(index, _)| number(index as u64)).collect())
                };
                let missing = indices(missing);
                let mut reply = vec![state(after, wall), number(0), indices(holding), missing];
                reply.extend(holders(after, wall));
                fields.push(Value::Array(reply));
            }
            fields
        }
        (op, answer) => panic!("`{op:?}` was answered {answer:?}"),
    };
    Ok(Value::Array(fields))
}

fn failure(index: usize, error: &str) -> Value {
    Value::Array(vec![number(index as u64), text(error)])
}

/// Encodes failed renewals: the script continues, and a lock that is not held needs no write.
fn refused_renewals(applied: &Applied<'_>, batch: &[RenewedHold]) -> Vec<Value> {
    let is_held = |renewal: &RenewedHold| {
        applied.effects.iter().any(|(key, before, _)| {
            let owner = owner_text(applied.id, renewal.owner);
            key.same_lock(&renewal.key) && before.left(&owner, renewal.token).is_some()
        })
    };
    let failures = batch.iter().enumerate().map(|(index, renewal)| {
        let error = if is_held(renewal) { REFUSAL } else { "" };
        failure(index, error)
    });
    failures.collect()
}

/// Encodes a message on a client's channel.
pub(super) fn message(client: &ClientId, grant: &Grant, wall: u64) -> Vec<Value> {
    let Grant {
        key,
        owner,
        token,
        lease,
        kind,
        ..
    } = grant;
    let owner = owner_text(client, *owner);
    let lease = lease.as_millis();
    let kind = if *kind == Kind::Mutex { "mutex" } else { "rw" };
    vec![
        text(format!("{CHANNELS}{}", client.as_str())),
        text(format!(
            "{kind} {owner} {token} {wall} {lease} {NAMESPACE}:lock:{}",
            key.tagged()
        )),
    ]
}
