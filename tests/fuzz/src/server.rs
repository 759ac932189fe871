//! What the server of a case answers, and what it has proven with that.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use distlock_tests::garbage::{
    Call, Frame, Impostor, Reaction, Verb, edge_number, junk, nearly, oracle, stream,
};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const PREFIX: &str = "distlock:lock:";

/// Draws from a seed.
pub(crate) struct Dice(TestRunner);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        Dice(TestRunner::new_with_rng(Config::default(), rng))
    }

    pub(crate) fn draw<T: std::fmt::Debug>(&mut self, strategy: impl Strategy<Value = T>) -> T {
        match strategy.new_tree(&mut self.0) {
            Ok(tree) => tree.current(),
            Err(reason) => unreachable!("a strategy without values: {reason}"),
        }
    }

    pub(crate) fn percent(&mut self, chance: u32) -> bool {
        self.draw(0..100u32) < chance
    }
}

/// Something that the bytes prove: this lock, with this token, since then.
#[derive(Clone, Debug)]
struct Proof {
    key: String,
    token: u64,
    at: Instant,
    /// A pushed grant: it is as old as its message, which may wait anywhere.
    pushed: bool,
}

#[derive(Debug, Default)]
struct Record {
    proofs: Vec<Proof>,
    /// When a renewal of a key was last answered without naming it.
    renewed: Vec<(String, Instant)>,
    /// A duration was sent that would free a key.
    zero: Option<String>,
    owners: Vec<String>,
    client: String,
    next_token: i64,
}

/// A garbage server and its record.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) impostor: Impostor,
    record: Arc<Mutex<Record>>,
}

/// How honest a server is, in percent of its answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mood {
    pub(crate) honest: u32,
    pub(crate) handshake: u32,
    pub(crate) bytes: u32,
    /// Somebody else has every lock, for ever: only the callers' own deadlines end anything.
    pub(crate) stubborn: bool,
}

impl Server {
    pub(crate) fn start(seed: u64, mood: Mood) -> Server {
        let record = Arc::new(Mutex::new(Record {
            next_token: 1_000,
            ..Record::default()
        }));
        let dice = Mutex::new(Dice::new(seed));
        let known = record.clone();
        let impostor = Impostor::start(move |name, call| {
            let received = Instant::now();
            let mut dice = dice.lock().unwrap_or_else(PoisonError::into_inner);
            let mut record = lock(&known);
            match call {
                Some(call) => Some(record.react(&mut dice, mood, call, received)),
                None if dice.percent(mood.handshake) => Some(record.disturb(&mut dice, name)),
                None => None,
            }
        });
        Server { impostor, record }
    }

    /// What is wrong with a guard of this key and token.
    pub(crate) fn objection(&self, key: &str, token: u64) -> Option<String> {
        let record = lock(&self.record);
        let proven = record
            .proofs
            .iter()
            .any(|proof| proof.token == token && proof.key == format!("{{{key}}}"));
        (!proven).then(|| format!("a guard of `{key}` with token {token}: {:?}", record.proofs))
    }

    /// The last moment at which a command was received whose answer proves the hold; `None` when that cannot
    /// be said.
    pub(crate) fn proven_at(&self, key: &str, token: u64) -> Option<Instant> {
        let record = lock(&self.record);
        let key = format!("{{{key}}}");
        let of_hold = || record.proofs.iter().filter(|proof| proof.token == token);
        if of_hold().any(|proof| proof.pushed) {
            return None;
        }
        let renewed = record
            .renewed
            .iter()
            .filter(|(renewed, _)| *renewed == key)
            .map(|(_, at)| *at);
        of_hold().map(|proof| proof.at).chain(renewed).max()
    }

    /// A duration that would free a key, if one was sent.
    pub(crate) fn zero(&self) -> Option<String> {
        lock(&self.record).zero.clone()
    }
}

/// Somebody else has it.
fn stubborn(call: &Call) -> Reaction {
    let now = Frame::Int(Impostor::micros());
    let value = Frame::text("2 0123456789abcdef0123456789abcdef:7 1700 30250 1700 name");
    let answer = match call.verb {
        Verb::Ask => vec![Frame::Int(2), now, value],
        Verb::Look => {
            let seen = Frame::Array(vec![value, Frame::Int(100), Frame::Array(Vec::new())]);
            let mut replies = vec![now];
            replies.resize(1 + call.keys.len() / 4, seen);
            replies
        }
        Verb::Renew | Verb::Inspect => Vec::new(),
        Verb::Confirm => vec![Frame::Int(0); 2],
        Verb::Release => return reaction(call, Frame::text("0")),
    };
    reaction(call, Frame::Array(answer))
}

fn reaction(call: &Call, answer: Frame) -> Reaction {
    Reaction {
        bytes: call.reply(&answer.encode()),
        close: false,
    }
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock's name behind the prefix.
fn name(call: &Call, index: usize) -> String {
    call.keys
        .get(index)
        .and_then(|key| key.strip_prefix(PREFIX))
        .unwrap_or_default()
        .to_owned()
}

impl Record {
    fn react(&mut self, dice: &mut Dice, mood: Mood, call: &Call, received: Instant) -> Reaction {
        self.note(call);
        if mood.stubborn {
            return stubborn(call);
        }
        let mut bytes = Vec::new();
        if !self.client.is_empty() && dice.percent(30) {
            bytes.extend(self.push(dice, call).encode());
        }
        if dice.percent(mood.bytes) {
            let close = dice.percent(30);
            if dice.percent(70) {
                bytes.extend(dice.draw(stream(self.texts())));
            }
            return Reaction { bytes, close };
        }
        let right = self.right(dice, call);
        let answer = if dice.percent(mood.honest) {
            right
        } else {
            let texts = self.texts();
            dice.draw(
                prop_oneof![4 => nearly(Just(right).boxed(), texts.clone()), 1 => junk(texts)],
            )
        };
        self.prove(call, &answer, received);
        bytes.extend(call.reply(&answer.encode()));
        Reaction {
            bytes,
            close: false,
        }
    }

    /// Something odd in answer to a command that is no script.
    fn disturb(&mut self, dice: &mut Dice, _name: &str) -> Reaction {
        let texts = self.texts();
        if dice.percent(50) {
            dice.draw(junk(texts)).into()
        } else {
            Reaction {
                bytes: dice.draw(stream(texts)),
                close: dice.percent(30),
            }
        }
    }

    fn note(&mut self, call: &Call) {
        let ttls: Vec<&String> = match call.verb {
            Verb::Ask => {
                let owner = &call.args[0];
                let client = owner.split(':').next().unwrap_or_default();
                client.clone_into(&mut self.client);
                self.owners.push(owner.clone());
                vec![&call.args[1]]
            }
            Verb::Confirm => call.args[1..].iter().collect(),
            Verb::Renew => call.args.iter().skip(1).step_by(2).collect(),
            _ => Vec::new(),
        };
        if ttls
            .iter()
            .any(|ttl| ttl.parse().is_ok_and(|ttl: i64| ttl < 1))
        {
            self.zero = Some(format!("{call:?}"));
        }
    }

    /// Writes down what an answer proves.
    fn prove(&mut self, call: &Call, answer: &Frame, at: Instant) {
        match call.verb {
            Verb::Ask | Verb::Confirm => {
                let proven = if call.verb == Verb::Ask {
                    oracle::proof_of_ask(answer)
                } else {
                    oracle::proof(answer)
                };
                if let Some(token) = proven {
                    let proof = Proof {
                        key: name(call, 0),
                        token,
                        at,
                        pushed: false,
                    };
                    self.proofs.push(proof);
                }
            }
            Verb::Renew => {
                let Some(failures) = oracle::failures(answer, call.keys.len()) else {
                    return;
                };
                for index in 0..call.keys.len() {
                    if failures.iter().all(|(failed, _)| *failed != index) {
                        self.renewed.push((name(call, index), at));
                    }
                }
            }
            Verb::Release | Verb::Look | Verb::Inspect => {}
        }
    }

    fn token(&mut self) -> i64 {
        self.next_token += 1;
        self.next_token
    }

    /// Texts that could be taken for something of the client's.
    fn texts(&self) -> Vec<String> {
        let other = "0123456789abcdef0123456789abcdef:7";
        let mut texts = vec![
            other.to_owned(),
            format!("2 {other} 1700 30250 1700 name"),
            "7".into(),
            format!("held 7 {}", Impostor::micros()),
        ];
        for owner in self.owners.iter().rev().take(3) {
            for rest in [
                "",
                " 1700 30250 1700 name",
                " 01700 30250 1700 name",
                " 0 1 1 n",
                " x",
            ] {
                texts.push(format!("{owner}{rest}"));
                texts.push(format!("2 {owner}{rest}"));
            }
        }
        texts
    }

    /// An answer that a server could give.
    fn right(&mut self, dice: &mut Dice, call: &Call) -> Frame {
        let now = Frame::Int(Impostor::micros());
        let other = Frame::text(format!(
            "2 {} 1700 30250 1700 name",
            "0123456789abcdef0123456789abcdef:7"
        ));
        let int = Frame::Int;
        match call.verb {
            Verb::Ask if dice.percent(50) => {
                Frame::text(format!("held {} {}", self.token(), Impostor::micros()))
            }
            Verb::Ask => {
                let verdict = dice.draw(select(vec![2, 2, 2, 2, 3, 4, 5, 6]));
                let value = if dice.percent(10) {
                    Frame::text("")
                } else {
                    other
                };
                Frame::Array(vec![int(verdict), now, value])
            }
            Verb::Confirm if dice.percent(80) => Frame::Array(vec![int(1), now, int(self.token())]),
            Verb::Confirm => Frame::Array(vec![int(0), now]),
            Verb::Renew if dice.percent(70) => Frame::Array(Vec::new()),
            Verb::Renew => Frame::Array(vec![Frame::Array(vec![int(0), Frame::text("")])]),
            Verb::Release => Frame::text(if dice.percent(20) { "3" } else { "1" }),
            Verb::Look => {
                let mut replies = vec![now];
                for _ in 0..call.keys.len() / 4 {
                    let ours = self.owners.last().filter(|_| dice.percent(30));
                    let value = ours.map_or(other.clone(), |owner| {
                        Frame::text(format!("2 {owner} 1700 30250 1700 me"))
                    });
                    let missing = if dice.percent(20) {
                        vec![int(0)]
                    } else {
                        Vec::new()
                    };
                    replies.push(Frame::Array(vec![value, int(100), Frame::Array(missing)]));
                }
                Frame::Array(replies)
            }
            Verb::Inspect => {
                Frame::Array(vec![now, other, int(100), int(0), Frame::text("5"), int(1)])
            }
        }
    }

    /// A grant for the last who asked, or nearly one.
    fn push(&mut self, dice: &mut Dice, call: &Call) -> Frame {
        let number = |dice: &mut Dice, right: i64| {
            if dice.percent(85) {
                right.to_string()
            } else {
                dice.draw(edge_number()).to_string()
            }
        };
        let owner = if dice.percent(85) {
            self.owners.last().cloned().unwrap_or_default()
        } else {
            dice.draw(select(self.texts()))
        };
        let token = self.token();
        let token = number(dice, token);
        let granted = number(dice, Impostor::micros());
        let lease = number(dice, 300);
        let lock = if dice.percent(85) {
            call.keys[0].clone()
        } else {
            dice.draw(select(vec![
                "",
                "distlock:lock:{other}",
                "distlock:queue:{a}",
                "distlock:lock:",
                "{a}",
            ]))
            .to_owned()
        };
        let push = Frame::Push(vec![
            Frame::text("message"),
            Frame::text(format!("distlock:client:{}", self.client)),
            Frame::text(format!("{owner} {token} {granted} {lease} {lock}")),
        ]);
        let push = if dice.percent(75) {
            push
        } else {
            dice.draw(nearly(Just(push).boxed(), self.texts()))
        };
        if let Some(granted) = oracle::grant(&self.client, &push) {
            let (key, token) = (granted.key, granted.token);
            self.proofs.push(Proof {
                key,
                token,
                at: Instant::now(),
                pushed: true,
            });
        }
        push
    }
}
