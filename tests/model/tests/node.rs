//! Shows that a server with the quorum's scripts replies and pushes as the model's node does.

// The tests unwrap values that they expect.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use distlock_tests::{RedisServer, Reply, Resp};
use model::Token;
use model::quorum::{Body, Command, Message, Node, Owner, Rules, Script};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const CLIENTS: usize = 3;
const HOUR: &str = "3600000";
const FAR_FUTURE: &str = "9999999999999999";

/// One step of a test case.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A client sends a command. Tokens 0, 1 and 2 stand for the one before the lock's token (or
    /// the last token), that token, and the next one.
    Send(Command),
    /// The lock expires.
    Expire,
    /// The node loses its data.
    Forget,
    /// The quarantine ends.
    Vote,
    /// A client subscribes, or unsubscribes.
    Subscribe(usize, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let near = 0..3 as Token;
    let script = prop_oneof![
        6 => prop::option::of(near.clone()).prop_map(Script::Acquire),
        2 => near.clone().prop_map(Script::Yield),
        3 => near.clone().prop_map(Script::Confirm),
        2 => prop::option::of(near.clone()).prop_map(Script::Release),
        1 => near.clone().prop_map(Script::Renew),
        1 => near.prop_map(Script::Repair),
    ];
    let send = (0..CLIENTS, 0..2_u8, script).prop_map(|(client, number, script)| {
        let owner = Owner::new(client, number);
        Step::Send(Command { owner, script })
    });
    let subscribe = (0..CLIENTS, any::<bool>());
    let step = prop_oneof![
        20 => send,
        2 => Just(Step::Expire),
        1 => Just(Step::Forget),
        2 => Just(Step::Vote),
        2 => subscribe.prop_map(|(client, subscribed)| Step::Subscribe(client, subscribed)),
    ];
    prop::collection::vec(step, 1..60)
}

/// Returns the script as the server receives it, with the test's own time (µs).
fn source(script: Script, now: u64) -> String {
    let source = match script {
        Script::Acquire(_) => include_str!("../../../lua/quorum/acquire.lua"),
        Script::Yield(_) => include_str!("../../../lua/quorum/yield.lua"),
        Script::Confirm(_) => include_str!("../../../lua/quorum/confirm.lua"),
        Script::Release(_) => include_str!("../../../lua/quorum/release.lua"),
        Script::Renew(_) => include_str!("../../../lua/quorum/renew.lua"),
        Script::Repair(_) => include_str!("../../../lua/quorum/repair.lua"),
    };
    let epoch = include_str!("../../../lua/quorum/epoch.lua");
    let votes = include_str!("../../../lua/quorum/votes.lua");
    let time = format!("{{ '{}', '{}' }}", now / 1_000_000, now % 1_000_000);
    source
        .replace("--@include quorum/epoch", epoch)
        .replace("--@include quorum/votes", votes)
        .replace("redis.call('TIME')", &time)
}

/// One server, and the clients that subscribe to it.
struct RealNode<'a> {
    server: &'a RedisServer,
    raw: Resp,
    clients: Vec<Option<Resp>>,
    /// The keys of this test case.
    keys: [String; 5],
    /// The number of the server's run; every start is a new run.
    run: u32,
    /// The server's token for each token of the model.
    tokens: BTreeMap<Token, u64>,
    /// The server's clock (µs).
    now: u64,
    /// The time after which the server rejects an acquire or a repair as too late.
    apply_by: String,
}

fn channel(client: usize) -> String {
    format!("channel:{client:032x}")
}

fn name(owner: Owner) -> String {
    format!("{:032x}:{}", owner.client(), owner.0)
}

/// Returns a ticket. Some tickets are equal, so that the names decide.
fn ticket(owner: Owner) -> u32 {
    1_000_000 + u32::from(owner.0 / 2)
}

impl<'a> RealNode<'a> {
    fn new(server: &'a RedisServer, case: u32) -> Self {
        let keys =
            ["lock", "queue", "entry", "fence", "epoch"].map(|key| format!("{key}:{{{case}}}"));
        let mut node = RealNode {
            server,
            raw: server.client(),
            clients: (0..CLIENTS).map(|_| None).collect(),
            keys,
            run: 0,
            tokens: BTreeMap::new(),
            now: 1_700_000_000_000_000,
            apply_by: FAR_FUTURE.to_owned(),
        };
        (0..CLIENTS).for_each(|client| node.subscribe(client, true));
        node.vote();
        node
    }

    fn subscribe(&mut self, client: usize, subscribed: bool) {
        let subscriber = &mut self.clients[client];
        if !subscribed {
            if let Some(mut subscriber) = subscriber.take() {
                subscriber.cmd(&["UNSUBSCRIBE", &channel(client)]);
            }
        } else if subscriber.is_none() {
            let mut raw = self.server.client();
            raw.cmd(&["SUBSCRIBE", &channel(client)]);
            *subscriber = Some(raw);
        }
    }

    /// Ends the quarantine.
    fn vote(&mut self) {
        let epoch = format!("run{} 0", self.run);
        self.raw.cmd(&["SET", &self.keys[4], &epoch]);
    }

    fn forget(&mut self) {
        self.run += 1;
        // The node does not vote before its clock is above all tokens.
        self.now = self.now.max(self.newest() + 1);
        for key in &self.keys {
            self.raw.cmd(&["DEL", key]);
        }
        // The next command finds another run.
        self.raw.cmd(&["SET", &self.keys[4], "another 0"]);
    }

    fn newest(&self) -> u64 {
        self.tokens
            .last_key_value()
            .map_or(0, |(_, newest)| *newest)
    }

    /// Returns a token of another node, which may be ahead.
    fn ahead(&mut self) -> u64 {
        let fence = self.raw.get(&self.keys[3]);
        let fence = fence.map_or(0, |fence| fence.parse().unwrap());
        fence.max(self.newest()).max(self.now) + 10_000
    }

    fn apply(&mut self, Command { owner, script }: Command) -> Reply {
        let token = |token: Token| self.tokens.get(&token).copied().unwrap_or_default();
        let (id, ticket, apply_by) = (name(owner), ticket(owner), &self.apply_by);
        let (client, run) = (
            format!("{:032x}", owner.client()),
            format!("run{}", self.run),
        );
        let args = match script {
            Script::Acquire(named) => {
                let named = token(named.unwrap_or_default());
                let rest = format!("30000 60000 100 {HOUR} {run} {client} channel:");
                format!("{id}|{ticket}|33000|{apply_by}|{HOUR}|a name|{rest}|{named}")
            }
            Script::Yield(given) => {
                let (given, rest) = (token(given), format!("{HOUR} {client} channel:"));
                format!("{id}|{given}|{ticket}|30000 33000 a name|60000|{rest}")
            }
            Script::Confirm(given) => {
                let given = token(given);
                format!("{id}|{given}|33000|{HOUR}|{ticket}|{HOUR}|{run}")
            }
            Script::Release(named) => {
                let next = named.map(|named| format!("|{} {ticket} {HOUR} {run}", token(named)));
                let next = next.unwrap_or_default();
                format!("{id}|0|{HOUR} {client} channel:{next}")
            }
            Script::Renew(given) => {
                let given = token(given);
                format!("{run}|{HOUR}|{ticket}|{id} {given}|33000")
            }
            Script::Repair(given) => {
                let given = token(given);
                format!("{id}|{given}|{ticket}|33000|{apply_by}|{HOUR}|a name|{run}|{HOUR}")
            }
        };
        let args: Vec<_> = args.split('|').collect();
        let [lock, queue, entry, fence, epoch] = self.keys.each_ref().map(String::as_str);
        let keys = match script {
            Script::Yield(_) => vec![lock, queue, entry, fence],
            Script::Renew(_) => vec![epoch, lock],
            _ => vec![lock, queue, entry, fence, epoch],
        };
        self.now += 1_000;
        let (source, count) = (source(script, self.now), keys.len().to_string());
        let words = [vec!["EVAL", &*source, &*count], keys, args].concat();
        self.raw.cmd(&words)
    }

    /// Asserts that the server's reply means the same as the reply of the model's node.
    fn check_answer(&mut self, expected: Body, script: Script, reply: &Reply) {
        let is_renewal = matches!(script, Script::Renew(_));
        let known = |token| self.tokens[&token] as i64;
        let at = |index: usize| reply.array()[index].int();
        match expected {
            Body::Yielded => assert!(matches!(reply, Reply::Bulk(_)), "{reply:?}"),
            Body::Released => assert!(matches!(reply, Reply::Int(_)), "{reply:?}"),
            Body::Confirmed(_) if is_renewal => assert_eq!(reply.array(), []),
            Body::Refused if is_renewal => assert_eq!(failure(reply), ""),
            Body::Free => assert_eq!(failure(reply), "FREE"),
            Body::Refused => assert_eq!(at(0), 0),
            Body::Confirmed(token) => assert_eq!((at(0), at(2)), (1, known(token))),
            Body::Newer(token) => assert_eq!((at(0), at(2)), (2, known(token))),
            Body::Yours(token, lower) => {
                assert_eq!((at(0), at(2), at(3)), (2, known(token), i64::from(lower)));
            }
            Body::Queued => assert_eq!(at(0), 3),
            Body::NotVoting => assert_eq!(at(0), 7),
            Body::Granted(token) => {
                assert_eq!(at(0), 1);
                self.granted(token, at(2) as u64);
            }
            Body::Lower | Body::HandedOn(..) => panic!("{expected:?} is a push"),
        }
    }

    /// Records a token, and asserts that the server's tokens rise as the model's do.
    fn granted(&mut self, token: Token, number: u64) {
        let last = self.newest();
        assert!(number > last, "{number} after {last}");
        let before = self.tokens.insert(token, number);
        assert_eq!(before, None, "each is given once");
    }

    /// Asserts that the server has sent the same push as the model's node, and no other.
    fn check_pushes(&mut self, expected: Option<Message>) {
        for client in 0..CLIENTS {
            let pushes = self.pushes(client);
            let to_client = expected.filter(|message| message.owner.client() == client);
            let Some(Message { owner, body }) = to_client else {
                assert_eq!(pushes, [""; 0], "to client {client}");
                continue;
            };
            assert_eq!(pushes.len(), 1, "{pushes:?}");
            let words: Vec<_> = pushes[0].split(' ').collect();
            assert_eq!(words.last(), Some(&&*self.keys[0]));
            assert_eq!(words[1], name(owner));
            match body {
                Body::Granted(token) => {
                    assert_eq!(words[0], "vote");
                    self.granted(token, words[2].parse().unwrap());
                }
                Body::HandedOn(token, _) => {
                    let push = (words[0], words[2].parse().unwrap(), words[4]);
                    assert_eq!(push, ("held", self.tokens[&token], "1000"));
                }
                Body::Lower => assert_eq!(words[0], "lower"),
                other => panic!("{other:?} is not a push"),
            }
        }
    }

    /// Returns all pushes that a client has received until now.
    fn pushes(&mut self, client: usize) -> Vec<String> {
        let Some(raw) = &mut self.clients[client] else {
            return Vec::new();
        };
        raw.send(&["PING"]).unwrap();
        let mut pushes = Vec::new();
        loop {
            let reply = raw.read_reply(Duration::from_secs(30)).unwrap();
            match reply.array() {
                [kind, _, text] if kind.text() == Some("message") => {
                    pushes.push(text.text().unwrap().to_owned())
                }
                _ => return pushes,
            }
        }
    }
}

/// Returns the only failure of a renewal.
fn failure(reply: &Reply) -> &str {
    reply.array()[0].array()[1].text().unwrap()
}

fn run(server: &RedisServer, case: u32, steps: &[Step]) {
    let (mut node, mut real) = (Node::default(), RealNode::new(server, case));
    for step in steps {
        match *step {
            Step::Expire => {
                node.lock = None;
                real.raw.cmd(&["DEL", &real.keys[0].clone()]);
            }
            Step::Forget => {
                let newest = real.tokens.last_key_value().map_or(0, |(token, _)| *token);
                node.forget(&Rules::ALL, newest);
                real.forget();
            }
            Step::Vote => {
                node.quarantine = 0;
                real.vote();
            }
            Step::Subscribe(client, subscribed) => real.subscribe(client, subscribed),
            Step::Send(command) => send(&mut node, &mut real, command),
        }
    }
}

fn send(node: &mut Node, real: &mut RealNode<'_>, mut command: Command) {
    if real.clients[command.owner.client()].is_none() {
        return;
    }
    // A token that this node has not given comes from another node.
    let mut invented = None;
    let is_given = matches!(command.script, Script::Yield(_) | Script::Renew(_));
    if let Some(token) = command.script.token_mut() {
        let lock = node.lock.map_or(node.fence, |lock| lock.token);
        *token = (lock + *token).saturating_sub(1).max(1);
        if !is_given && !real.tokens.contains_key(token) {
            let last = real.tokens.last_key_value();
            if last.is_some_and(|(last, _)| *token < *last) {
                return;
            }
            let above = real.ahead();
            real.tokens.insert(*token, above);
            invented = Some(*token);
        }
    }
    let subscribed: Vec<_> = real.clients.iter().map(Option::is_some).collect();
    let response = node.apply(&Rules::ALL, command, |owner| subscribed[owner.client()]);
    let reply = real.apply(command);
    real.check_answer(response.answer, command.script, &reply);
    let is_handed_on = |push: &Message| matches!(push.body, Body::HandedOn(..));
    let is_used = matches!(response.answer, Body::Confirmed(_))
        || response.push.as_ref().is_some_and(is_handed_on);
    if let Some(token) = invented.filter(|_| !is_used) {
        real.tokens.remove(&token);
    }
    real.check_pushes(response.push);
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

fn command(client: usize, script: Script) -> Command {
    let owner = Owner::new(client, 0);
    Command { owner, script }
}

/// Shows that a restarted server does not hand on, because its old data may lack a hold.
#[test]
fn a_restarted_server_hands_off_only_its_vote() {
    let server = RedisServer::start();
    for (case, has_restarted) in [(0, false), (1, true)] {
        let mut real = RealNode::new(&server, case);
        real.apply(command(0, Script::Acquire(None)));
        real.apply(command(1, Script::Acquire(None)));
        real.run += u32::from(has_restarted);
        let named = real.ahead();
        real.tokens.insert(1, named);
        real.apply(command(0, Script::Release(Some(1))));
        let pushes = real.pushes(1);
        let kind = if has_restarted { "vote " } else { "held " };
        assert!(pushes[0].starts_with(kind), "{pushes:?}");
        let confirmed = real.apply(command(1, Script::Confirm(1)));
        assert_eq!(confirmed.array()[0].int() == 1, !has_restarted);
    }
}

/// Shows that late commands are not applied, because their owner may have been released meanwhile.
#[test]
fn a_late_acquire_or_repair_leaves_nothing() {
    let server = RedisServer::start();
    for (case, script) in (0..).zip([Script::Acquire(None), Script::Repair(1)]) {
        let mut real = RealNode::new(&server, case);
        let (lock, token) = (real.keys[0].clone(), real.ahead());
        real.tokens.insert(1, token);
        for (left, is_applied) in [(999, false), (1_000, true)] {
            real.apply_by = format!("{:016}", real.now + left);
            real.apply(command(0, script));
            assert_eq!(real.raw.exists(&lock), is_applied, "{script:?}");
        }
    }
}

#[test]
fn a_repair_takes_only_free_locks() {
    let server = RedisServer::start();
    let mut real = RealNode::new(&server, 0);
    let (lock, token) = (real.keys[0].clone(), real.ahead());
    real.tokens.insert(1, token);
    let other = name(Owner::new(1, 0));
    for state in ["held", "kept", "revoked", "vote"] {
        let value = format!("3 {state} {other} {token} 1 33000 1 a name");
        real.raw.cmd(&["SET", &lock, &value]);
        real.apply(command(0, Script::Repair(1)));
        let is_taken = real.raw.get(&lock) != Some(value);
        assert_eq!(is_taken, state == "vote", "{state}");
    }
}
