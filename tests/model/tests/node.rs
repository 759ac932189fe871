//! Shows that a server with the quorum's scripts replies and stores as the model's node does.

// The tests unwrap values that they expect.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use distlock_tests::{RedisServer, Reply, Resp};
use model::Token;
use model::quorum::{Body, Command, Node, Owner, Rules, Script};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

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
    Grant,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let near = 0..3 as Token;
    let script = prop_oneof![
        6 => near.clone().prop_map(Script::Acquire),
        3 => near.clone().prop_map(Script::Confirm),
        2 => near.clone().prop_map(Script::Repair),
        2 => near.prop_map(Script::Renew),
        2 => Just(Script::Release),
    ];
    let send = (0..3_usize, 0..2_u8, script).prop_map(|(client, number, script)| {
        let owner = Owner::new(client, number);
        Step::Send(Command { owner, script })
    });
    let step = prop_oneof![
        20 => send,
        2 => Just(Step::Expire),
        1 => Just(Step::Forget),
        2 => Just(Step::Grant),
    ];
    prop::collection::vec(step, 1..60)
}

/// Returns the script as the server receives it, with the test's own time (µs).
fn source(script: Script, now: u64) -> String {
    let source = match script {
        Script::Acquire(_) | Script::Confirm(_) | Script::Repair(_) => {
            include_str!("../../../lua/quorum/acquire.lua")
        }
        Script::Release => include_str!("../../../lua/quorum/release.lua"),
        Script::Renew(_) => include_str!("../../../lua/quorum/renew.lua"),
    };
    let epoch = include_str!("../../../lua/quorum/epoch.lua");
    let time = format!("{{ '{}', '{}' }}", now / 1_000_000, now % 1_000_000);
    source
        .replace("--@include quorum/epoch", epoch)
        .replace("redis.call('TIME')", &time)
}

/// One server.
struct RealNode {
    raw: Resp,
    /// The keys of this test case: lock, fence and epoch.
    keys: [String; 3],
    /// The number of the server's run; every start is a new run.
    run: u32,
    /// The server's token for each token of the model.
    tokens: BTreeMap<Token, u64>,
    /// The server's clock (µs).
    now: u64,
    /// The time after which the server rejects a command as too late.
    apply_by: String,
}

fn name(owner: Owner) -> String {
    format!("{:032x}:{}", owner.client(), owner.0)
}

impl RealNode {
    fn new(server: &RedisServer, case: u32) -> Self {
        let mut node = RealNode {
            raw: server.client(),
            keys: ["lock", "fence", "epoch"].map(|key| format!("{key}:{{{case}}}")),
            run: 0,
            tokens: BTreeMap::new(),
            now: 1_700_000_000_000_000,
            apply_by: FAR_FUTURE.to_owned(),
        };
        node.grant();
        node
    }

    /// Ends the quarantine.
    fn grant(&mut self) {
        let epoch = format!("run{} 0", self.run);
        self.raw.cmd(&["SET", &self.keys[2], &epoch]);
    }

    fn forget(&mut self) {
        self.run += 1;
        // The node does not grant before its clock is above all tokens.
        self.now = self.now.max(self.newest() + 1);
        for key in &self.keys {
            self.raw.cmd(&["DEL", key]);
        }
    }

    fn newest(&self) -> u64 {
        self.tokens
            .last_key_value()
            .map_or(0, |(_, newest)| *newest)
    }

    fn apply(&mut self, Command { owner, mut script }: Command) -> Reply {
        self.now += 1_000;
        let (source, apply_by, run) = (source(script, self.now), &self.apply_by, self.run);
        let named = script.token_mut().map(|token| self.tokens[token]);
        let (id, token) = (name(owner), named.unwrap_or_default());
        let rest = format!("{HOUR}|a name|{token}|{HOUR}|run{run}");
        let args = match script {
            Script::Acquire(_) => format!("{id}|33000|{apply_by}|{rest}|0|acquire"),
            Script::Confirm(_) => format!("{id}|33000|{apply_by}|{rest}|0|confirm"),
            Script::Repair(_) => format!("{id}|33000|{apply_by}|{rest}|0|repair"),
            Script::Release => format!("3 {id} |0"),
            Script::Renew(_) => format!("run{run}|{HOUR}|0|{id}|{token}|33000"),
        };
        let [lock, fence, epoch] = self.keys.each_ref().map(String::as_str);
        let keys = match script {
            Script::Renew(_) => vec![epoch, lock],
            _ => vec![lock, fence, epoch],
        };
        let count = keys.len().to_string();
        let args = args.split('|').collect();
        let words = [vec!["EVAL", &*source, &*count], keys, args].concat();
        self.raw.cmd(&words)
    }

    /// Asserts that the server's reply means the same as the reply of the model's node.
    fn check_reply(&mut self, script: Script, expected: Body, in_quarantine: bool, reply: &Reply) {
        if let Script::Renew(_) = script {
            let failure = reply
                .array()
                .first()
                .map(|first| first.array()[1].text().unwrap());
            let expected = match expected {
                Body::Holds => None,
                Body::Lacks => Some("REPAIR"),
                _ => Some(""),
            };
            return assert_eq!(failure, expected);
        }
        let at = |index: usize| reply.array()[index].int();
        match (expected, script) {
            (Body::Released, _) => assert!(matches!(reply, Reply::Bulk(_)), "{reply:?}"),
            (Body::Granted(token), _) => {
                let number = at(2) as u64;
                assert!(number >= self.newest(), "{number} after {}", self.newest());
                let known = *self.tokens.entry(token).or_insert(number);
                assert_eq!((at(0), number), (1, known));
            }
            (Body::Holds, _) => assert_eq!(at(0), 1),
            _ => assert_eq!(at(0), if in_quarantine { 7 } else { 3 }),
        }
    }

    /// Asserts that the server stores the same lock and fence.
    fn check_stored(&mut self, node: &Node) {
        let lock = self.raw.get(&self.keys[0]);
        let stored = lock
            .as_ref()
            .map(|value| value.splitn(4, ' ').collect::<Vec<_>>());
        let expected = node
            .lock
            .map(|lock| (name(lock.owner), self.tokens[&lock.token]));
        let stored = stored.map(|words| (words[1].to_owned(), words[2].parse().unwrap()));
        assert_eq!(stored, expected);
        // After a loss of data the clock is above what the fence has forgotten.
        if !node.has_forgotten {
            let fence = self.raw.get(&self.keys[1]);
            let fence = fence.map(|fence| fence.trim_end_matches('+').parse().unwrap());
            assert_eq!(fence, self.tokens.get(&node.fence).copied());
        }
    }
}

fn send(node: &mut Node, real: &mut RealNode, mut command: Command) {
    let mut invented = None;
    if let Some(token) = command.script.token_mut() {
        let lock = node.lock.map_or(node.fence, |lock| lock.token);
        *token = (lock + *token).saturating_sub(1).max(1);
        if !real.tokens.contains_key(token) {
            // The token comes from another node, which may be ahead.
            if real
                .tokens
                .last_key_value()
                .is_some_and(|(last, _)| *token < *last)
            {
                return;
            }
            let above = real.newest().max(real.now) + 10_000;
            real.tokens.insert(*token, above);
            invented = Some(*token);
        }
    }
    let in_quarantine = node.quarantine > 0;
    let expected = node.apply(&Rules::ALL, command);
    let reply = real.apply(command);
    real.check_reply(command.script, expected, in_quarantine, &reply);
    real.check_stored(node);
    // A token that the node did not store remains free.
    if let Some(token) = invented.filter(|token| node.fence < *token) {
        real.tokens.remove(&token);
    }
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
            Step::Grant => {
                node.quarantine = 0;
                real.grant();
            }
            Step::Send(command) => send(&mut node, &mut real, command),
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

/// Shows that late commands are not applied, because their owner may have been released meanwhile.
#[test]
fn a_late_acquire_or_repair_leaves_nothing() {
    let server = RedisServer::start();
    for (case, script) in (0..).zip([Script::Acquire(1), Script::Repair(1)]) {
        let mut real = RealNode::new(&server, case);
        let (lock, owner) = (real.keys[0].clone(), Owner::new(0, 0));
        real.tokens.insert(1, real.now);
        for (left, is_applied) in [(999, false), (1_000, true)] {
            real.apply_by = format!("{:016}", real.now + left);
            real.apply(Command { owner, script });
            assert_eq!(real.raw.exists(&lock), is_applied, "{script:?}");
        }
    }
}

/// Shows that a lock that is kept or revoked is not extended for its owner.
#[test]
fn an_ended_lock_is_neither_confirmed_nor_renewed() {
    let server = RedisServer::start();
    let mut real = RealNode::new(&server, 0);
    let (lock, owner) = (real.keys[0].clone(), Owner::new(0, 0));
    let token = real.now;
    real.tokens.insert(1, token);
    for zeros in ["0", "00"] {
        let value = format!("3 {} {zeros}{token} 33000 1 a name", name(owner));
        real.raw.cmd(&["SET", &lock, &value, "PX", "20000"]);
        for script in [
            Script::Acquire(1),
            Script::Confirm(1),
            Script::Repair(1),
            Script::Renew(1),
        ] {
            real.apply(Command { owner, script });
            assert_eq!(real.raw.get(&lock).as_ref(), Some(&value), "{script:?}");
            let ttl = real.raw.cmd(&["PTTL", &lock]).int();
            assert!(ttl <= 20_000, "{script:?}: {ttl}");
        }
    }
}
