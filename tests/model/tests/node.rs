//! A server with the quorum's scripts answers as the model's node does, and tells the same to the same.

// A test says what it expects by unwrapping it.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use distlock_tests::{RedisServer, Reply, Resp};
use model::quorum::{Command, Message, Node, Owner, Rules, Token};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const CLIENTS: usize = 3;
const HOUR: &str = "3600000";
/// Ends when a clock does.
const LATER: &str = "9999999999999999";

/// What happens to a node.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client asks something for one of its two owners.
    Client(usize, u8, Wish),
    /// The lock expires.
    Expire,
    /// The node loses its data.
    Forget,
    /// It votes again.
    Vote,
    /// A client goes, or comes back.
    Listen(usize, bool),
}

/// Tokens are named by how far they are from the lock's, or from the last one.
#[derive(Clone, Copy, Debug)]
enum Wish {
    Ask(Option<i16>),
    Yield(i16),
    Confirm(i16),
    Release(Option<i16>),
    Renew(i16),
    Repair(i16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let near = -1..2_i16;
    let wish = prop_oneof![
        6 => prop::option::of(near.clone()).prop_map(Wish::Ask),
        2 => near.clone().prop_map(Wish::Yield),
        3 => near.clone().prop_map(Wish::Confirm),
        2 => prop::option::of(near.clone()).prop_map(Wish::Release),
        1 => near.clone().prop_map(Wish::Renew),
        1 => near.prop_map(Wish::Repair),
    ];
    let step = prop_oneof![
        20 => (0..CLIENTS, 0..2_u8, wish).prop_map(|(client, number, wish)| Step::Client(client, number, wish)),
        2 => Just(Step::Expire),
        1 => Just(Step::Forget),
        2 => Just(Step::Vote),
        2 => (0..CLIENTS, any::<bool>()).prop_map(|(client, listens)| Step::Listen(client, listens)),
    ];
    prop::collection::vec(step, 1..60)
}

/// The scripts as the server gets them.
struct Script(String);

impl Script {
    fn new(source: &str) -> Self {
        let fragments = [
            (
                "--@include quorum/epoch",
                include_str!("../../../lua/quorum/epoch.lua"),
            ),
            (
                "--@include quorum/votes",
                include_str!("../../../lua/quorum/votes.lua"),
            ),
        ];
        let include = |source: String, (name, text): (&str, &str)| source.replace(name, text);
        Script(fragments.into_iter().fold(source.to_owned(), include))
    }

    /// At a time of the test's own (µs).
    fn run(&self, now: u64, raw: &mut Resp, keys: &[&str], args: &[&str]) -> Reply {
        let count = keys.len().to_string();
        let (seconds, micros) = (now / 1_000_000, now % 1_000_000);
        let time = format!("{{ '{seconds}', '{micros}' }}");
        let source = self.0.replace("redis.call('TIME')", &time);
        let words = [&["EVAL", &*source, &*count], keys, args].concat();
        raw.cmd(&words)
    }
}

/// One server, and the clients that listen to it.
struct Side<'a> {
    raw: Resp,
    clients: Vec<Option<Resp>>,
    server: &'a RedisServer,
    /// The names of what is used in this case.
    keys: [String; 5],
    /// Each start has its own.
    run: u32,
    /// The model's tokens, and the server's.
    tokens: BTreeMap<Token, u64>,
    /// The server's clock (µs).
    now: u64,
    /// The time after which a command of a client comes too late.
    apply_by: String,
}

fn channel(client: usize) -> String {
    format!("channel:{client:032x}")
}

fn name(owner: Owner) -> String {
    format!("{:032x}:{}", owner.client(), owner.0)
}

/// Some are equal: then the names decide.
fn ticket(owner: Owner) -> String {
    (1_000_000 + u32::from(owner.0 / 2)).to_string()
}

impl<'a> Side<'a> {
    fn new(server: &'a RedisServer, case: u32) -> Self {
        let keys =
            ["lock", "queue", "entry", "fence", "epoch"].map(|key| format!("{key}:{{{case}}}"));
        let mut side = Side {
            raw: server.client(),
            clients: (0..CLIENTS).map(|_| None).collect(),
            server,
            keys,
            run: 0,
            tokens: BTreeMap::new(),
            now: 1_700_000_000_000_000,
            apply_by: LATER.to_owned(),
        };
        (0..CLIENTS).for_each(|client| side.listen(client, true));
        side.vote();
        side
    }

    fn listen(&mut self, client: usize, listens: bool) {
        let subscriber = &mut self.clients[client];
        if !listens {
            if let Some(mut subscriber) = subscriber.take() {
                subscriber.cmd(&["UNSUBSCRIBE", &channel(client)]);
            }
        } else if subscriber.is_none() {
            let mut raw = self.server.client();
            raw.cmd(&["SUBSCRIBE", &channel(client)]);
            *subscriber = Some(raw);
        }
    }

    /// Its quarantine is over.
    fn vote(&mut self) {
        let epoch = format!("run{} 0", self.run);
        self.raw.cmd(&["SET", &self.keys[4], &epoch]);
    }

    fn forget(&mut self) {
        self.run += 1;
        // It does not vote before.
        self.now = self.now.max(self.newest() + 1);
        for key in &self.keys {
            self.raw.cmd(&["DEL", key]);
        }
        // Whoever asks first notices.
        self.raw.cmd(&["SET", &self.keys[4], "another 0"]);
    }

    fn newest(&self) -> u64 {
        let newest = self.tokens.last_key_value();
        newest.map_or(0, |(_, newest)| *newest)
    }

    /// A token of another node, which may be ahead.
    fn ahead(&mut self) -> u64 {
        let fence = self.raw.get(&self.keys[3]);
        let fence = fence.map_or(0, |fence| fence.parse().unwrap());
        fence.max(self.newest()).max(self.now) + 10_000
    }

    fn apply(&mut self, command: Command) -> Reply {
        let keys: [&str; 5] = std::array::from_fn(|at| &*self.keys[at]);
        let token = |token: Token| {
            self.tokens
                .get(&token)
                .copied()
                .unwrap_or_default()
                .to_string()
        };
        let (client, run) = (
            |owner: Owner| format!("{:032x}", owner.client()),
            format!("run{}", self.run),
        );
        self.now += 1_000;
        let (now, raw) = (self.now, &mut self.raw);
        match command {
            Command::Ask(owner, named) => {
                let named = token(named.unwrap_or_default());
                let rest = format!("30000 60000 100 {HOUR} {run} {} channel:", client(owner));
                let args = [
                    &*name(owner),
                    &*ticket(owner),
                    "33000",
                    &*self.apply_by,
                    HOUR,
                    "a name",
                    &*rest,
                    &*named,
                ];
                Script::new(include_str!("../../../lua/quorum/ask.lua")).run(now, raw, &keys, &args)
            }
            Command::Yield(owner, given) => {
                let rest = format!("{HOUR} {} channel:", client(owner));
                let args = [
                    &*name(owner),
                    &*token(given),
                    &*ticket(owner),
                    "30000 33000 a name",
                    "60000",
                    &*rest,
                ];
                Script::new(include_str!("../../../lua/quorum/yield.lua")).run(
                    now,
                    raw,
                    &keys[..4],
                    &args,
                )
            }
            Command::Confirm(owner, given) => {
                let args = [
                    &*name(owner),
                    &*token(given),
                    "33000",
                    HOUR,
                    &*ticket(owner),
                    HOUR,
                    &*run,
                ];
                Script::new(include_str!("../../../lua/quorum/confirm.lua"))
                    .run(now, raw, &keys, &args)
            }
            Command::Release(owner, named) => {
                let rest = format!("{HOUR} {} channel:", client(owner));
                let next =
                    named.map(|named| format!("{} {} {HOUR} {run}", token(named), ticket(owner)));
                let owner = name(owner);
                let args = [&*owner, "0", &*rest].into_iter();
                let args: Vec<_> = args.chain(next.as_deref()).collect();
                Script::new(include_str!("../../../lua/quorum/release.lua"))
                    .run(now, raw, &keys, &args)
            }
            Command::Renew(owner, given) => {
                let held = format!("{} {}", name(owner), token(given));
                let args = [&*run, HOUR, &*ticket(owner), &*held, "33000"];
                Script::new(include_str!("../../../lua/quorum/renew.lua")).run(
                    now,
                    raw,
                    &[keys[4], keys[0]],
                    &args,
                )
            }
            Command::Repair(owner, given) => {
                let args = [
                    &*name(owner),
                    &*token(given),
                    &*ticket(owner),
                    "33000",
                    &*self.apply_by,
                    HOUR,
                    "a name",
                    &*run,
                    HOUR,
                ];
                Script::new(include_str!("../../../lua/quorum/repair.lua"))
                    .run(now, raw, &keys, &args)
            }
        }
    }

    /// What the server said means what the model's node says.
    fn answered(&mut self, expected: Message, command: Command, reply: &Reply) {
        let numbers = |reply: &Reply| -> Vec<i64> {
            let numbers = reply.array().iter().map(|one| match one {
                Reply::Int(number) => *number,
                _ => -1,
            });
            numbers.collect()
        };
        let verdict = || numbers(reply)[0];
        match expected {
            Message::Granted(_, token) => {
                assert_eq!(verdict(), 1, "{reply:?}");
                self.granted(token, numbers(reply)[2] as u64);
            }
            Message::Yours(_, token, lower) => {
                let said = numbers(reply);
                let known = self.tokens[&token] as i64;
                assert_eq!((said[0], said[2], said[3]), (2, known, i64::from(lower)));
            }
            Message::Queued(_) => assert_eq!(verdict(), 3, "{reply:?}"),
            Message::NotVoting(_) => assert_eq!(verdict(), 7, "{reply:?}"),
            Message::Confirmed(_, token) => match command {
                Command::Renew(..) => assert_eq!(reply.array(), []),
                _ => {
                    let said = numbers(reply);
                    assert_eq!((said[0], said[2]), (1, self.tokens[&token] as i64));
                }
            },
            Message::Newer(_, token) => {
                let said = numbers(reply);
                assert_eq!((said[0], said[2]), (2, self.tokens[&token] as i64));
            }
            Message::Refused(_) => match command {
                Command::Renew(..) => assert_eq!(failure(reply), ""),
                _ => assert_eq!(verdict(), 0, "{reply:?}"),
            },
            Message::Free(_) => assert_eq!(failure(reply), "FREE"),
            Message::Yielded(_) => assert!(matches!(reply, Reply::Bulk(_)), "{reply:?}"),
            Message::Released(_) => assert!(matches!(reply, Reply::Int(_)), "{reply:?}"),
            Message::Lower(_) | Message::HandedOn(..) => panic!("it is told unasked"),
        }
    }

    /// Tokens rise as the model's do.
    fn granted(&mut self, token: Token, number: u64) {
        let (_, last) = self.tokens.last_key_value().unwrap_or((&0, &0));
        assert!(number > *last, "{number} after {last}");
        let before = self.tokens.insert(token, number);
        assert_eq!(before, None, "each is given once");
    }

    /// Nothing else is told.
    fn told(&mut self, expected: Option<Message>) {
        for client in 0..CLIENTS {
            let told = self.messages(client);
            let to = expected.filter(|message| message.owner().client() == client);
            let Some(message) = to else {
                assert_eq!(told, [""; 0], "to client {client}");
                continue;
            };
            assert_eq!(told.len(), 1, "{told:?}");
            let words: Vec<_> = told[0].split(' ').collect();
            assert_eq!(words.last(), Some(&&*self.keys[0]));
            assert_eq!(words[1], name(message.owner()));
            match message {
                Message::Granted(_, token) => {
                    assert_eq!(words[0], "vote");
                    self.granted(token, words[2].parse().unwrap());
                }
                Message::HandedOn(_, token, _) => {
                    let said = (words[0], words[2].parse().unwrap(), words[4]);
                    assert_eq!(said, ("held", self.tokens[&token], "1000"));
                }
                Message::Lower(_) => assert_eq!(words[0], "lower"),
                other => panic!("{other:?} is no push"),
            }
        }
    }

    /// All that a client was told until now.
    fn messages(&mut self, client: usize) -> Vec<String> {
        let Some(raw) = &mut self.clients[client] else {
            return Vec::new();
        };
        raw.send(&["PING"]).unwrap();
        let mut told = Vec::new();
        loop {
            let reply = raw.read_reply(Duration::from_secs(30)).unwrap();
            match reply.array() {
                [kind, _, text] if kind.text() == Some("message") => {
                    told.push(text.text().unwrap().to_owned())
                }
                _ => return told,
            }
        }
    }
}

/// The one failure of a renewal.
fn failure(reply: &Reply) -> &str {
    reply.array()[0].array()[1].text().unwrap()
}

fn run(server: &RedisServer, case: u32, steps: &[Step]) {
    let (mut node, mut side) = (Node::default(), Side::new(server, case));
    for step in steps {
        match *step {
            Step::Expire => {
                node.lock = None;
                side.raw.cmd(&["DEL", &side.keys[0].clone()]);
            }
            Step::Forget => {
                let newest = side.tokens.last_key_value().map_or(0, |(token, _)| *token);
                node.forget(&Rules::ALL, newest);
                side.forget();
            }
            Step::Vote => {
                node.quarantine = 0;
                side.vote();
            }
            Step::Listen(client, listens) => side.listen(client, listens),
            Step::Client(client, number, wish) => {
                if side.clients[client].is_none() {
                    continue;
                }
                let owner = Owner::new(client, number);
                let near = |by: i16| {
                    let from = node.lock.map_or(node.fence, |lock| lock.token);
                    i16::from(from).saturating_add(by).max(1) as Token
                };
                let command = match wish {
                    Wish::Ask(named) => Command::Ask(owner, named.map(near)),
                    Wish::Yield(by) => Command::Yield(owner, near(by)),
                    Wish::Confirm(by) => Command::Confirm(owner, near(by)),
                    Wish::Release(named) => Command::Release(owner, named.map(near)),
                    Wish::Renew(by) => Command::Renew(owner, near(by)),
                    Wish::Repair(by) => Command::Repair(owner, near(by)),
                };
                // One that this node has not given comes from another.
                let mut invented = None;
                if let Command::Ask(_, Some(token))
                | Command::Release(_, Some(token))
                | Command::Confirm(_, token)
                | Command::Repair(_, token) = command
                    && !side.tokens.contains_key(&token)
                {
                    let last = side.tokens.last_key_value();
                    if last.is_some_and(|(last, _)| token < *last) {
                        continue;
                    }
                    let above = side.ahead();
                    side.tokens.insert(token, above);
                    invented = Some(token);
                }
                let listens: Vec<_> = side.clients.iter().map(Option::is_some).collect();
                let said = node.apply(&Rules::ALL, command, |owner| listens[owner.client()]);
                let reply = side.apply(command);
                side.answered(said.answer, command, &reply);
                let is_used = matches!(said.answer, Message::Confirmed(..))
                    || matches!(said.push, Some(Message::HandedOn(..)));
                if let Some(token) = invented.filter(|_| !is_used) {
                    side.tokens.remove(&token);
                }
                side.told(said.push);
            }
        }
    }
}

#[test]
fn a_server_does_what_the_models_node_does() {
    let server = RedisServer::start();
    let mut runner = TestRunner::new(Config {
        cases: 300,
        failure_persistence: None,
        ..Config::default()
    });
    let case = std::cell::Cell::new(0);
    let run = |steps: Vec<Step>| {
        case.set(case.get() + 1);
        run(&server, case.get(), &steps);
        Ok(())
    };
    if let Err(error) = runner.run(&steps(), run) {
        panic!("{error}");
    }
}

/// One that came back with what it had written long ago may have forgotten a hold.
#[test]
fn a_server_that_may_have_forgotten_hands_nothing_on() {
    let server = RedisServer::start();
    for (case, has_restarted) in [(0, false), (1, true)] {
        let mut side = Side::new(&server, case);
        let [first, second] = [0, 1].map(|client| Owner::new(client, 0));
        side.apply(Command::Ask(first, None));
        side.apply(Command::Ask(second, None));
        side.run += u32::from(has_restarted);
        let named = side.ahead();
        side.tokens.insert(1, named);
        side.apply(Command::Release(first, Some(1)));
        let told = side.messages(1);
        let says = if has_restarted { "vote " } else { "held " };
        assert!(told[0].starts_with(says), "{told:?}");
        let confirmed = side.apply(Command::Confirm(second, 1));
        assert_eq!(confirmed.array()[0].int() == 1, !has_restarted);
    }
}

/// Their owner may have been released meanwhile.
#[test]
fn an_ask_or_a_repair_that_comes_too_late_leaves_nothing() {
    let server = RedisServer::start();
    let owner = Owner::new(0, 0);
    let commands = [Command::Ask(owner, None), Command::Repair(owner, 1)];
    for (case, command) in (0..).zip(commands) {
        let mut side = Side::new(&server, case);
        let (lock, token) = (side.keys[0].clone(), side.ahead());
        side.tokens.insert(1, token);
        for (left, is_applied) in [(999, false), (1_000, true)] {
            side.apply_by = format!("{:016}", side.now + left);
            side.apply(command);
            assert_eq!(side.raw.exists(&lock), is_applied, "{command:?}");
        }
    }
}

#[test]
fn a_repair_takes_only_what_is_free() {
    let server = RedisServer::start();
    let mut side = Side::new(&server, 0);
    let [lock, ..] = side.keys.clone();
    let [owner, other] = [0, 1].map(|client| Owner::new(client, 0));
    let token = side.ahead();
    side.tokens.insert(1, token);
    for state in ["held", "kept", "revoked", "vote"] {
        let value = format!("3 {state} {} {token} 1 33000 1 a name", name(other));
        side.raw.cmd(&["SET", &lock, &value]);
        side.apply(Command::Repair(owner, 1));
        let is_taken = side.raw.get(&lock) != Some(value);
        assert_eq!(is_taken, state == "vote", "{state}");
    }
}
