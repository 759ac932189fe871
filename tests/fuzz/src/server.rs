//! The replies of a case's server, and what they prove.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use distlock_tests::garbage::{
    Call, Frame, Impostor, NONSENSE, Names, Reaction, Then, Verb, junk, oracle, push, reply, right,
    stream,
};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Random draws from a seed.
pub(crate) struct Dice(TestRunner);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        Dice(TestRunner::new_with_rng(Config::default(), rng))
    }

    pub(crate) fn draw<T: Debug>(&mut self, strategy: impl Strategy<Value = T>) -> T {
        match strategy.new_tree(&mut self.0) {
            Ok(tree) => tree.current(),
            Err(reason) => unreachable!("a strategy without values: {reason}"),
        }
    }

    pub(crate) fn percent(&mut self, chance: u32) -> bool {
        self.draw(0..100u32) < chance
    }
}

/// The kind of replies that a server sends.
#[derive(Clone, Debug)]
pub(crate) enum Mood {
    /// Every lock is free, and every hold continues.
    Honest,
    /// Another client has every lock forever, and releases may never end. Only the callers' own
    /// deadlines end anything.
    Stubborn { endless: bool },
    /// Each reply is drawn. The fields are percentages. Replies to scripts are right, are only
    /// bytes, or belong to another request; other replies are odd.
    Mixed {
        right: u32,
        bytes: u32,
        shifted: u32,
        greeting: u32,
    },
    /// The same reply to every script, or to every command.
    Same { answer: Reaction, greets: bool },
}

impl Mood {
    /// Draws a mood. Every second seed replies with the next piece of fixed nonsense.
    pub(crate) fn drawn(seed: u64, dice: &mut Dice) -> Mood {
        let next = seed as usize / 2 % NONSENSE.len();
        match seed % 2 {
            0 => Mood::Same {
                answer: NONSENSE[next].clone(),
                greets: dice.percent(70),
            },
            _ if dice.percent(15) => Mood::Stubborn {
                endless: dice.percent(20),
            },
            _ => Mood::Mixed {
                right: dice.draw(select(vec![0, 40, 70, 90])),
                bytes: dice.draw(select(vec![0, 0, 0, 5, 20])),
                shifted: dice.draw(select(vec![0, 0, 0, 5, 20])),
                greeting: dice.draw(select(vec![0, 0, 0, 5, 30])),
            },
        }
    }
}

/// A fact that the bytes prove.
#[derive(Clone, Debug)]
struct Proof {
    lock: String,
    /// `None` for a renewal, which names no token.
    token: Option<u64>,
    /// When the command was received. A pushed grant is as old as its message, which may be delayed
    /// anywhere.
    at: Option<Instant>,
}

#[derive(Debug)]
struct Record {
    mood: Mood,
    proofs: Vec<Proof>,
    names: Names,
    /// A command with a TTL that would free a lock.
    zero: Option<String>,
    renewals: u64,
}

/// A server and its record.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) impostor: Impostor,
    record: Arc<Mutex<Record>>,
}

impl Server {
    pub(crate) fn start(seed: u64) -> Server {
        let record = Arc::new(Mutex::new(Record {
            mood: Mood::Honest,
            proofs: Vec::new(),
            names: Names::default(),
            zero: None,
            renewals: 0,
        }));
        let dice = Mutex::new(Dice::new(seed));
        let known = record.clone();
        let impostor = Impostor::start(move |_, call| {
            let received = Instant::now();
            lock(&known).react(&mut lock(&dice), call, received)
        });
        Server { impostor, record }
    }

    pub(crate) fn mood(&self, mood: Mood) {
        lock(&self.record).mood = mood;
    }

    /// Returns true if the bytes prove a guard of this key with this token.
    pub(crate) fn proves(&self, key: &str, token: u64) -> bool {
        let record = lock(&self.record);
        let mut proofs = record.proofs.iter();
        proofs.any(|proof| proof.token == Some(token) && proof.lock == name(key))
    }

    /// Returns when the last command was received for which the reply proves the hold, or `None` if
    /// that is unknown.
    pub(crate) fn proven_at(&self, key: &str, token: u64) -> Option<Instant> {
        let record = lock(&self.record);
        let of_hold = |proof: &&Proof| proof.token.is_none_or(|of| of == token);
        let proofs = record.proofs.iter().filter(of_hold);
        let times = proofs.filter(|proof| proof.lock == name(key));
        times
            .map(|proof| proof.at)
            .collect::<Option<Vec<_>>>()?
            .into_iter()
            .max()
    }

    /// Returns a command that was sent with a TTL that would free a lock.
    pub(crate) fn zero(&self) -> Option<String> {
        lock(&self.record).zero.clone()
    }

    /// Returns how many renewals got garbage.
    pub(crate) fn renewals(&self) -> u64 {
        lock(&self.record).renewals
    }
}

/// Returns the name of a key's lock.
fn name(key: &str) -> String {
    format!("distlock:lock:{{{key}}}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Record {
    fn react(&mut self, dice: &mut Dice, call: Option<&Call>, at: Instant) -> Option<Reaction> {
        if let Some(call) = call {
            self.note(call);
        }
        match (self.mood.clone(), call) {
            (Mood::Same { answer, greets }, _) => (call.is_some() || !greets).then_some(answer),
            (Mood::Mixed { greeting, .. }, None) => {
                dice.percent(greeting).then(|| self.disturb(dice))
            }
            (_, None) => None,
            (mood, Some(call)) => Some(self.answer(&mood, dice, call, at)),
        }
    }

    /// Replies to a script.
    fn answer(&mut self, mood: &Mood, dice: &mut Dice, call: &Call, at: Instant) -> Reaction {
        let mut right = right(call.verb, call.locks(), &self.names);
        let Mood::Mixed {
            right: honest,
            bytes,
            shifted,
            ..
        } = *mood
        else {
            let answer = match (mood, call.verb) {
                (Mood::Stubborn { endless: true }, Verb::Release) => Frame::text("released more"),
                (Mood::Stubborn { .. }, _) => right.swap_remove(right.len() - 1),
                _ => right.swap_remove(0),
            };
            self.prove(call, &answer, at);
            return Reaction::new(call.reply(answer));
        };
        let mut sent = Vec::new();
        if !self.names.owners.is_empty() && dice.percent(30) {
            sent.extend(self.push(dice).encode());
        }
        if dice.percent(bytes) {
            let drawn = self.disturb(dice);
            sent.extend(drawn.bytes);
            return Reaction {
                bytes: sent,
                ..drawn
            };
        }
        let answer = if dice.percent(honest) {
            dice.draw(select(right))
        } else {
            dice.draw(reply(call.verb, call.locks(), &self.names))
        };
        if dice.percent(shifted) {
            sent.extend(answer.encode());
        } else {
            self.prove(call, &answer, at);
            sent.extend(call.reply(answer));
        }
        Reaction::new(sent)
    }

    /// Draws an odd reply to any command.
    fn disturb(&self, dice: &mut Dice) -> Reaction {
        if dice.percent(50) {
            return dice.draw(junk(&self.names)).into();
        }
        let then = if dice.percent(30) {
            Then::Close
        } else {
            Then::GoOn
        };
        let bytes = dice.draw(stream(&self.names));
        Reaction { bytes, then }
    }

    fn note(&mut self, call: &Call) {
        let ttls = match call.verb {
            Verb::Acquire => &call.args[2..3],
            Verb::Confirm => &call.args[1..2],
            Verb::Renew => &call.args[1..],
            _ => &[],
        };
        // A renewal has owners between its TTLs.
        let is_zero = |ttl: &String| ttl.parse().is_ok_and(|ttl: i64| ttl < 1);
        if ttls.iter().any(is_zero) {
            self.zero = Some(format!("{call:?}"));
        }
        if call.verb == Verb::Acquire {
            // The start of a value is the layout, the owner and a space.
            let owner = call.args[0].trim_start_matches("2 ").trim_end();
            self.names.client = owner.split(':').next().unwrap_or_default().to_owned();
            // The newest owner is the likeliest to wait still.
            self.names.owners.truncate(3);
            self.names
                .owners
                .insert(0, (owner.to_owned(), call.keys[0].clone()));
        }
        if call.verb == Verb::Renew && !matches!(self.mood, Mood::Honest) {
            self.renewals += 1;
        }
    }

    /// Records what a reply proves.
    fn prove(&mut self, call: &Call, answer: &Frame, at: Instant) {
        let proof = |lock: &String, token| Proof {
            lock: lock.clone(),
            token,
            at: Some(at),
        };
        let failures = match call.verb {
            Verb::Renew => oracle::failures(answer, call.keys.len()),
            _ => None,
        };
        if let Some(failures) = failures {
            let locks = call.keys.iter().enumerate();
            let renewed = locks.filter(|(index, _)| !failures.contains(index));
            self.proofs
                .extend(renewed.map(|(_, lock)| proof(lock, None)));
        }
        let token = match call.verb {
            Verb::Acquire => oracle::held(answer),
            Verb::Confirm => oracle::confirmed(answer),
            _ => None,
        };
        self.proofs
            .extend(token.map(|_| proof(&call.keys[0], token)));
    }

    /// Draws a grant for an owner that has sent an acquire, or for a similar one.
    fn push(&mut self, dice: &mut Dice) -> Frame {
        let push = dice.draw(push(&self.names));
        let granted = oracle::granted(&self.names.client, &push);
        self.proofs.extend(granted.map(|granted| Proof {
            lock: format!("distlock:lock:{}", granted.key),
            token: Some(granted.token),
            at: None,
        }));
        push
    }
}
