//! Tests of the scripts alone, each command at a chosen moment: writes refused without memory,
//! foreign values, long queues and whatever else no operation of `tests/equivalence` causes.

use std::collections::BTreeMap;

use distlock::__inside::scripts;
use distlock_tests::{RedisServer, Reply, Resp};

use crate::support::ms;

mod bounded;
mod full;
mod rules;

const ACQUIRE: &str = "acquire";
const CHECK_QUEUE: &str = "check_queue";
const RELEASE: &str = "release";
const CONFIRM: &str = "confirm";

const LOCK: &str = "t:lock:{k}";
const QUEUE: &str = "t:queue:{k}";
const ENTRY: &str = "t:entry:{k}";
const FENCE: &str = "t:fence:{k}";
const DECLARED: [&str; 2] = [LOCK, FENCE];
const CHANNELS: &str = "t:client:";

/// Of a lease of one second, with its grace period.
const TTL: &str = "1250";
/// Two hours.
const FENCE_TTL: &str = "7200000";
/// A deadline that never passes.
const WHENEVER: &str = "9000000000000000";

/// The number of every request, which is the last argument, and the last part of the reply.
const NUMBER: &str = "7";

const HELD: &str = "held";
const QUEUED: &str = "queued";
const UNFINISHED: &str = "unfinished";
const BUSY: &str = "busy";
const FULL: &str = "full";

/// A server, and a connection that runs scripts on it for any client.
struct Bench {
    server: RedisServer,
    raw: Resp,
    /// The scripts, by name.
    scripts: BTreeMap<&'static str, String>,
    /// The clients that are connected and subscribed.
    live: BTreeMap<String, Resp>,
}

impl Bench {
    fn new(live: &[&str]) -> Self {
        let server = RedisServer::start();
        let subscriber = |client: &&str| {
            let mut resp = server.client();
            resp.cmd(&["SUBSCRIBE", &format!("{CHANNELS}{client}")]);
            ((*client).to_owned(), resp)
        };
        Bench {
            raw: server.client(),
            scripts: scripts().map(|(name, _, text)| (name, text)).into(),
            live: live.iter().map(subscriber).collect(),
            server,
        }
    }

    /// Gives `a:1` the lock for longer than any test takes, and queues `owners`.
    #[track_caller]
    fn queued(live: &[&str], owners: &[&str]) -> Self {
        let mut bench = Bench::new(live);
        bench.hold("a:1");
        for owner in owners {
            assert_eq!(bench.acquire(owner), QUEUED, "{owner}");
        }
        bench
    }

    fn run(&mut self, script: &str, keys: &[&str], args: &[&str]) -> Reply {
        let script = self.scripts[script].clone();
        let count = keys.len().to_string();
        let mut words = vec!["EVAL", &script, &count];
        words.extend(keys);
        words.extend(args);
        words.push(NUMBER);
        self.raw.cmd(&words)
    }

    fn acquire_with(&mut self, owner: &str, wait: &str, apply_by: &str) -> Reply {
        self.acquire_for(owner, TTL, wait, apply_by, "1000000")
    }

    /// Acquires with a limit of `max_waiters`.
    fn acquire_limited(&mut self, owner: &str, max_waiters: &str) -> Reply {
        self.acquire_for(owner, TTL, "60000", WHENEVER, max_waiters)
    }

    /// Acquires for a TTL.
    fn acquire_for(
        &mut self,
        owner: &str,
        ttl: &str,
        wait: &str,
        apply_by: &str,
        max_waiters: &str,
    ) -> Reply {
        let rest = format!("{apply_by:0>16} {wait} {max_waiters}");
        let args = [&format!("2 {owner} "), &rest, ttl, FENCE_TTL, "name"];
        self.run(ACQUIRE, &DECLARED, &args)
    }

    /// Returns the verdict of an acquire that waits for a minute.
    #[track_caller]
    fn acquire(&mut self, owner: &str) -> String {
        verdict(&self.acquire_with(owner, "60000", WHENEVER))
    }

    /// Acquires the lock for longer than any test takes.
    #[track_caller]
    fn hold(&mut self, owner: &str) {
        let reply = self.acquire_for(owner, "3600000", "60000", WHENEVER, "1000000");
        assert_eq!(verdict(&reply), HELD);
    }

    fn outlast(&mut self) {
        self.raw.cmd(&["PEXPIRE", LOCK, "3600000"]);
    }

    #[track_caller]
    fn try_acquire(&mut self, owner: &str) -> String {
        verdict(&self.acquire_with(owner, "0", WHENEVER))
    }

    fn try_release(&mut self, owner: &str) -> Reply {
        let rest = format!("0 {FENCE_TTL}");
        self.run(RELEASE, &DECLARED, &[&format!("2 {owner} "), &rest])
    }

    /// Returns true if `owner` was the holder.
    #[track_caller]
    fn release(&mut self, owner: &str) -> bool {
        let reply = self.try_release(owner);
        reply.text().unwrap().starts_with("released")
    }

    fn confirm(&mut self, owner: &str, ttl: &str) -> String {
        verdict(&self.run(CONFIRM, &[LOCK], &[owner, ttl]))
    }

    /// Runs the queue check of a client that waits with one owner.
    fn check_queue(&mut self, owner: &str) -> Reply {
        let args = [client_of(owner), FENCE_TTL, "", "1", owner];
        self.run(CHECK_QUEUE, &DECLARED, &args)
    }

    /// Returns the owner in the lock's value.
    #[track_caller]
    fn holder(&mut self) -> Option<String> {
        let value = self.raw.get(LOCK)?;
        Some(value.split(' ').nth(1).unwrap().to_owned())
    }

    fn queue(&mut self) -> Vec<String> {
        let reply = self.raw.cmd(&["ZRANGE", QUEUE, "0", "-1"]);
        let owners = reply.array().iter();
        owners
            .map(|owner| owner.text().unwrap().to_owned())
            .collect()
    }

    /// Returns the next message to a client, if one comes.
    fn message(&mut self, client: &str) -> Option<String> {
        let subscriber = self.live.get_mut(client).expect("it is subscribed");
        let message = subscriber.read_reply(ms(100)).ok()?;
        Some(message.array()[2].text().unwrap().to_owned())
    }

    fn configure(&mut self, name: &str, value: &str) {
        let reply = self.raw.cmd(&["CONFIG", "SET", name, value]);
        assert_eq!(reply, Reply::Status("OK".into()), "{name} {value}");
    }

    /// Deletes the lock, as its expiry would later.
    fn expire(&mut self) {
        self.raw.cmd(&["DEL", LOCK]);
    }

    /// Lets the grant to a client end unconfirmed.
    fn silence(&mut self, client: &str) {
        self.expire();
        self.raw.cmd(&["HSET", ENTRY, &format!("?{client}"), "1"]);
    }
}

fn client_of(owner: &str) -> &str {
    owner.split(':').next().unwrap()
}

#[track_caller]
fn verdict(reply: &Reply) -> String {
    assert!(!reply.is_error(), "{reply:?}");
    let word = match reply {
        Reply::Bulk(held) => held.split(' ').next(),
        reply => reply.array()[0].text(),
    };
    word.unwrap().to_owned()
}
