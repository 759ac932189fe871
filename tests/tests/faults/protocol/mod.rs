//! The scripts themselves, one interleaving a test, each command at a chosen moment.

use distlock_tests::{RedisServer, Reply, Resp};

use crate::kit::ms;

mod bounded;
mod fence_marks;
mod full;
mod granting;
mod passing;
mod rules;

const NEXT: &str = include_str!("../../../../lua/next.lua");
const ASK: &str = include_str!("../../../../lua/ask.lua");
const LOOK: &str = include_str!("../../../../lua/look.lua");
const RELEASE: &str = include_str!("../../../../lua/release.lua");
const CONFIRM: &str = include_str!("../../../../lua/confirm.lua");
const INSPECT: &str = include_str!("../../../../lua/inspect.lua");
const RENEW: &str = include_str!("../../../../lua/renew.lua");

const LOCK: &str = "t:lock:{k}";
const QUEUE: &str = "t:queue:{k}";
const ENTRY: &str = "t:entry:{k}";
const FENCE: &str = "t:fence:{k}";
const ALL: [&str; 4] = [LOCK, QUEUE, ENTRY, FENCE];
const CHANNELS: &str = "t:client:";

/// A second of lease, and its grace.
const LEASE: &str = "1000";
const TTL: &str = "1250";
/// Two hours.
const FENCE_TTL: &str = "7200000";
/// Never too late.
const WHENEVER: &str = "9000000000000000";

/// Of each request, which only the fast paths of the scripts repeat by themselves.
const NUMBER: &str = "7";

const HELD: i64 = 1;
const QUEUED: i64 = 2;
const BUSY: i64 = 3;
const LATE: i64 = 4;
const FULL: i64 = 6;

/// A server, and a connection that runs scripts on it for any client.
struct Bench {
    server: RedisServer,
    raw: Resp,
}

impl Bench {
    fn new() -> Self {
        let server = RedisServer::start();
        let raw = server.client();
        Bench { server, raw }
    }

    fn run(&mut self, source: &str, keys: &[&str], args: &[&str]) -> Reply {
        let source = source.replace("--@include next", NEXT);
        let count = keys.len().to_string();
        let mut words = vec!["EVAL", &source, &count];
        words.extend(keys);
        words.extend(args);
        self.raw.cmd(&words)
    }

    fn ask_with(&mut self, owner: &str, lease: &str, wait: &str, apply_by: &str) -> Reply {
        self.ask_as(owner, lease, wait, apply_by, "1000000")
    }

    /// An ask that finds a queue of `max_waiters` full.
    fn ask_limited(&mut self, owner: &str, max_waiters: &str) -> Reply {
        self.ask_as(owner, LEASE, "60000", WHENEVER, max_waiters)
    }

    fn ask_as(
        &mut self,
        owner: &str,
        lease: &str,
        wait: &str,
        apply_by: &str,
        max_waiters: &str,
    ) -> Reply {
        self.ask_for(owner, [lease, TTL], wait, apply_by, max_waiters)
    }

    /// An ask for a lease with a TTL.
    fn ask_for(
        &mut self,
        owner: &str,
        [lease, ttl]: [&str; 2],
        wait: &str,
        apply_by: &str,
        max_waiters: &str,
    ) -> Reply {
        let client = client_of(owner);
        let apply_by = format!("{apply_by:0>16}");
        let rest = format!("{lease} {wait} {max_waiters} {client} {CHANNELS}");
        let args = [owner, ttl, &apply_by, FENCE_TTL, "name", &rest, NUMBER];
        self.run(ASK, &ALL, &args)
    }

    /// The verdict of an ask that waits for a minute.
    #[track_caller]
    fn ask(&mut self, owner: &str) -> i64 {
        verdict(&self.ask_with(owner, LEASE, "60000", WHENEVER))
    }

    /// Takes the lock for longer than any test takes.
    #[track_caller]
    fn hold(&mut self, owner: &str) {
        let reply = self.ask_for(owner, [LEASE, "3600000"], "60000", WHENEVER, "1000000");
        assert_eq!(verdict(&reply), HELD);
    }

    fn outlast(&mut self) {
        self.raw.cmd(&["PEXPIRE", LOCK, "3600000"]);
    }

    #[track_caller]
    fn try_ask(&mut self, owner: &str) -> i64 {
        verdict(&self.ask_with(owner, LEASE, "0", WHENEVER))
    }

    fn try_release(&mut self, owner: &str) -> Reply {
        self.release_keeping(owner, "0")
    }

    fn release_keeping(&mut self, owner: &str, keep: &str) -> Reply {
        let rest = format!("{FENCE_TTL} {} {CHANNELS}", client_of(owner));
        match self.run(RELEASE, &ALL, &[owner, keep, &rest, NUMBER]) {
            Reply::Bulk(numbered) => Reply::Int(numbered[..1].parse().unwrap()),
            reply => reply,
        }
    }

    /// Whether it was the holder.
    #[track_caller]
    fn release(&mut self, owner: &str) -> bool {
        self.try_release(owner).int() & 1 == 1
    }

    fn confirm(&mut self, owner: &str, ttl: &str) -> i64 {
        verdict(&self.run(CONFIRM, &[LOCK, QUEUE, ENTRY], &[owner, ttl]))
    }

    /// What a client sees that waits with one owner: the lock's value.
    #[track_caller]
    fn look(&mut self, owner: &str) -> (String, bool) {
        let client = owner.split(':').next().unwrap();
        let reply = self.run(
            LOOK,
            &[LOCK, QUEUE, ENTRY, FENCE],
            &[client, CHANNELS, FENCE_TTL, "1", owner],
        );
        let seen = reply.array()[1].array();
        let missing = !seen[2].array().is_empty();
        (seen[0].text().unwrap().to_owned(), missing)
    }

    /// A client that is connected and subscribed.
    fn subscriber(&self, client: &str) -> Resp {
        let mut resp = self.server.client();
        resp.cmd(&["SUBSCRIBE", &format!("{CHANNELS}{client}")]);
        resp
    }

    /// The owner in the lock.
    #[track_caller]
    fn holder(&mut self) -> Option<String> {
        let value = self.raw.get(LOCK)?;
        Some(value.split(' ').nth(1).unwrap().to_owned())
    }

    #[track_caller]
    fn token(&mut self) -> u64 {
        let value = self.raw.get(LOCK).expect("the lock is taken");
        value.split(' ').nth(2).unwrap().parse().unwrap()
    }

    fn queue(&mut self) -> Vec<String> {
        let reply = self.raw.cmd(&["ZRANGE", QUEUE, "0", "-1"]);
        let owners = reply.array().iter();
        owners
            .map(|owner| owner.text().unwrap().to_owned())
            .collect()
    }

    /// The lock expires, as it would later.
    fn expire(&mut self) {
        self.raw.cmd(&["DEL", LOCK]);
    }
}

fn client_of(owner: &str) -> &str {
    owner.split(':').next().unwrap()
}

#[track_caller]
fn verdict(reply: &Reply) -> i64 {
    assert!(!reply.is_error(), "{reply:?}");
    match reply {
        Reply::Bulk(held) => {
            assert!(held.starts_with("held "), "{held}");
            HELD
        }
        reply => reply.array()[0].int(),
    }
}

/// Of an ask that was answered "held".
#[track_caller]
fn token_of(reply: &Reply) -> u64 {
    let numbers = reply.text().unwrap().strip_prefix("held ").unwrap();
    numbers.split(' ').next().unwrap().parse().unwrap()
}

/// The next message, if one comes.
fn message(subscriber: &mut Resp) -> Option<String> {
    let message = subscriber.read_reply(ms(100)).ok()?;
    Some(message.array()[2].text().unwrap().to_owned())
}
