//! Random sequences of operations produce the same replies, grants and final state on the memory
//! store and on Redis, and on the memory store and on PostgreSQL.
//!
//! `op` makes the sequences, `step` runs an operation on a store of either side, `reply` makes
//! replies comparable, `side` has what a side must do, and `postgres` what differs there by design.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use proptest::strategy::BoxedStrategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRunner};
use tokio::runtime::Runtime;

use crate::error::LockKind;
use crate::key::LockKey;
use crate::protocol::messages::AcquireReply;
use crate::store::StoreEvent;
use crate::store::redis::wire::scripts::Scripts;

mod keys;
mod op;
#[cfg(feature = "postgres")]
mod postgres;
mod reply;
mod rules;
mod side;
mod step;
#[cfg(feature = "postgres")]
mod tables;

use op::{Op, Sequence};
#[cfg(feature = "postgres")]
use postgres::InPostgres;
use reply::{Observed, Reply};
use side::{InMemory, InRedis, Side};
use step::Step;

const CASES: u32 = 13_000;

/// The same with PostgreSQL, and how often each kind must occur.
#[cfg(feature = "postgres")]
const POSTGRES_CASES: u32 = 1_000;
#[cfg(feature = "postgres")]
const MIN_POSTGRES_REPLIES: u32 = 1;

/// How often each kind of reply must occur in that many sequences.
const MIN_REPLIES: u32 = 100;
const CLIENTS: usize = 3;
const KEYS: usize = 3;

/// The number of queue entries that one call grants or removes in Redis. A further call grants at a
/// later time.
const PER_CALL: usize = 100;

/// A sequence that differs after more than this time is repeated, because leases run on in Redis.
const CALM: Duration = Duration::from_millis(300);

/// Upper limit of the difference between times of the two stores.
const TOLERANCE: Duration = Duration::from_millis(600);

/// The same with one clock for both: a hold that is cut down later ends later.
const HAND_TOLERANCE: Duration = Duration::from_millis(20);

/// Returns the number of sequences, which the environment can set.
fn cases(usual: u32) -> u32 {
    let text = std::env::var("DISTLOCK_SEEDS");
    text.map_or(usual, |text| {
        text.parse().expect("DISTLOCK_SEEDS is not a number")
    })
}

#[test]
fn memory_and_redis_give_the_same_replies() {
    compare_replies(
        Bench::start(InRedis::start(Scripts::bundled())),
        cases(CASES),
        MIN_REPLIES,
    );
}

#[cfg(feature = "postgres")]
#[test]
fn memory_and_postgres_give_the_same_replies() {
    compare_replies(
        Bench::start(InPostgres::start()),
        cases(POSTGRES_CASES),
        MIN_POSTGRES_REPLIES,
    );
}

fn compare_replies(mut bench: Bench, cases: u32, min_replies: u32) {
    let lacks = bench.side.lacks();
    let tally = match bench.run_sequences(&op::sequences(), cases, u32::MAX) {
        Ok(tally) => tally,
        Err(difference) => panic!("{difference}"),
    };
    // Shown with `--nocapture`, to choose the weights of the operations.
    println!("{tally:?}");
    // A number of sequences that was set need not have every kind.
    let expected = reply::KINDS.iter().filter(|kind| !lacks.contains(kind));
    for kind in expected.filter(|_| std::env::var("DISTLOCK_SEEDS").is_err()) {
        let times = tally.get(kind).copied().unwrap_or(0);
        assert!(
            times >= min_replies,
            "`{kind}` only occurred {times} times: {tally:?}"
        );
    }
}

type Tally = BTreeMap<&'static str, u32>;

struct Bench {
    runtime: Rc<Runtime>,
    side: Box<dyn Side>,
    /// Every sequence has its own keys, so that nothing has to be flushed.
    sequence: u64,
    /// Set if the last sequence was aborted, so that its grants may still be in flight.
    broke_off: bool,
    /// The number of replies of each kind, because equal rejections alone would prove little.
    tally: Tally,
}

impl Bench {
    fn start<S: Side + 'static>(side: impl Future<Output = S>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        Bench {
            side: Box::new(runtime.block_on(side)),
            runtime: Rc::new(runtime),
            sequence: 0,
            broke_off: false,
            tally: BTreeMap::new(),
        }
    }

    /// Replaces the functions of the server.
    #[cfg(feature = "postgres")]
    fn load(&mut self, functions: &str) {
        self.runtime.block_on(self.side.load(functions));
    }

    /// Runs sequences until the stores differ. Returns how often each kind of reply occurred.
    fn run_sequences(
        &mut self,
        sequences: &BoxedStrategy<Sequence>,
        cases: u32,
        max_shrink_iters: u32,
    ) -> Result<Tally, String> {
        let mut runner = TestRunner::new(Config {
            cases,
            failure_persistence: None,
            max_shrink_iters,
            // Much cheaper, and no attacker is involved.
            rng_algorithm: RngAlgorithm::XorShift,
            ..Config::default()
        });
        let bench = RefCell::new(self);
        let result = runner.run(sequences, |sequence| bench.borrow_mut().compare(&sequence));
        result.map_err(|error| error.to_string())?;
        Ok(std::mem::take(&mut bench.into_inner().tally))
    }

    fn compare(&mut self, sequence: &Sequence) -> Result<(), TestCaseError> {
        let runtime = self.runtime.clone();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let started = Instant::now();
            let result = runtime.block_on(self.run(sequence));
            let was_slow = self.side.has_own_time() && started.elapsed() > CALM;
            match result {
                Err(_) if was_slow && attempts < 20 => {}
                same => return same.map_err(TestCaseError::fail),
            }
        }
    }

    async fn run(&mut self, sequence: &Sequence) -> Result<(), String> {
        self.sequence += 1;
        let name = format!("sequence:{}", self.sequence);
        let keys = [format!("{{{name}}}:b"), format!("{{{name}}}:c"), name];
        let side = &mut *self.side;
        if std::mem::replace(&mut self.broke_off, true) {
            for client in 0..CLIENTS {
                side.messages(client).await;
            }
        }
        let mut both = Both {
            keys: keys.map(|key| LockKey::new(&key).unwrap()),
            kinds: sequence.kinds,
            memory: InMemory::new(side.clients(), side.clock()),
            observed_in_memory: Observed::of(sequence.kinds, false),
            observed_on_server: Observed::of(sequence.kinds, side.remembers_cancelled()),
            side,
        };
        let mut kinds = Vec::new();
        for (number, op) in sequence.ops.iter().enumerate() {
            both.note_kinds();
            let step = Step::resolve(
                sequence.kinds,
                both.kinds,
                op,
                number,
                &both.keys,
                &both.memory,
            );
            let result = both.step(step).await;
            kinds.extend(result.map_err(|why| format!("operation {number}, {why}"))?);
        }
        both.end()
            .await
            .map_err(|why| format!("in the end\n{why}"))?;
        self.broke_off = false;
        for kind in kinds {
            *self.tally.entry(kind).or_default() += 1;
        }
        Ok(())
    }
}

/// A sequence on both stores. Tokens are replaced by their ranks before they are compared.
struct Both<'a> {
    keys: [LockKey; KEYS],
    /// The kind as which each lock was last in use.
    kinds: [LockKind; KEYS],
    memory: InMemory,
    side: &'a mut dyn Side,
    observed_in_memory: Observed,
    observed_on_server: Observed,
}

impl Both<'_> {
    fn note_kinds(&mut self) {
        for (kind, key) in self.kinds.iter_mut().zip(&self.keys) {
            *kind = self.memory.kind(key).unwrap_or(*kind);
        }
    }

    async fn step(&mut self, step: Step) -> Result<Vec<&'static str>, String> {
        self.memory.tick();
        let step = self.side.adapt(step, &self.keys, &self.memory).await;
        let result = self.compare(&step).await;
        result.map_err(|why| format!("{step:?}\n{why}"))
    }

    async fn compare(&mut self, step: &Step) -> Result<Vec<&'static str>, String> {
        let keys = &self.keys;
        self.observed_in_memory.start();
        self.observed_on_server.start();
        self.memory.meddle(keys, step);
        let full = self.memory.finds_full(keys, step);
        let obstacles = self.memory.obstacles(keys, step);
        // A queue check of all locks shares the limit.
        if self.memory.queued(keys) >= PER_CALL {
            self.observed_in_memory.ignore_since();
            self.observed_on_server.ignore_since();
        }
        let ignores_permits = !self.side.knows_last_permits()
            // A waiter may be granted first, with another number.
            && (!self.memory.has_plain_permits(keys) || self.memory.queued(keys) > 0);
        let mut in_memory = step
            .reply(&self.memory.stores, keys, &mut self.observed_in_memory)
            .await;
        self.side.meddle(keys, step).await;
        let mut on_server = step
            .reply(self.side.stores(), keys, &mut self.observed_on_server)
            .await;
        if !self.side.knows_last_permits() && !self.memory.has_plain_permits(keys) {
            in_memory.forget_permits();
            on_server.forget_permits();
        }
        same(&in_memory, &on_server)?;
        self.side.settle(keys, &self.memory).await;
        if let (Step::Acquire { key, .. }, Reply::Acquire(AcquireReply::WrongKind { existing, .. })) =
            (step, &in_memory)
            && *existing != LockKind::Mutex
            && self.side.raises_other_tokens()
        {
            let ahead = Step::Op(Op::Ahead { key: *key });
            self.memory.meddle(keys, &ahead);
            self.side.meddle(keys, &ahead).await;
            self.observed_in_memory.behind(*key);
            self.observed_on_server.behind(*key);
        }
        let mut kinds = in_memory.kinds();
        kinds.extend(self.memory.unfinished(keys, step));
        if in_memory == Reply::AcquireAll(None) {
            kinds.extend(obstacles);
        }
        if full && matches!(in_memory, Reply::Acquire(AcquireReply::Queued(_))) {
            kinds.push("room made");
        }
        for client in 0..CLIENTS {
            let mut messages = self.memory.messages(client);
            if ignores_permits {
                messages.retain(|message| !is_about_permits(message));
            }
            // A server is read only for due messages, to save round trips. `end` finds others.
            if !messages.is_empty() || ignores_permits {
                kinds.extend(messages.iter().map(|message| match message {
                    StoreEvent::Granted(_) => "granted",
                    StoreEvent::OtherPermits { .. } => "other number of permits",
                    _ => "revocation received",
                }));
                self.messages(client, messages, ignores_permits).await?;
            }
        }
        Ok(kinds)
    }

    async fn messages(
        &mut self,
        client: usize,
        in_memory: Vec<StoreEvent>,
        ignores_permits: bool,
    ) -> Result<(), String> {
        let mut on_server = self.side.messages(client).await;
        on_server.retain(|message| !(ignores_permits && is_about_permits(message)));
        let rank = |observed: &mut Observed, messages: Vec<StoreEvent>| -> Vec<_> {
            let messages = messages.into_iter();
            let mut texts: Vec<_> = messages
                .map(|message| observed.message(client, &self.keys, message))
                .collect();
            // A server revokes the holds of a counted lock in any order, and then grants.
            let revoked = texts.iter().filter(|text| text.contains("revoked")).count();
            texts[..revoked].sort_unstable();
            // It comes with the reply, which a grant to the same client may overtake.
            texts.sort_by_key(|text| text.contains("differs"));
            texts
        };
        same(
            &rank(&mut self.observed_in_memory, in_memory),
            &rank(&mut self.observed_on_server, on_server),
        )
    }

    /// Lets both stores remove what has expired, and checks that no message remains, and that the
    /// locks have the same state and remaining times.
    async fn end(&mut self) -> Result<(), String> {
        self.note_kinds();
        self.step(Step::last(self.kinds)).await?;
        for client in 0..CLIENTS {
            self.messages(client, Vec::new(), false).await?;
        }
        for (at, key) in self.keys.iter().enumerate() {
            let mut in_memory = self.memory.snapshot(key);
            let mut on_server = self.side.snapshot(key, &mut in_memory).await;
            let left_in_memory = self.observed_in_memory.snapshot(at, &mut in_memory);
            let left_on_server = self.observed_on_server.snapshot(at, &mut on_server);
            same(&in_memory, &on_server)?;
            let mut left = left_in_memory.iter().zip(&left_on_server);
            let tolerance = if self.side.has_own_time() {
                TOLERANCE
            } else {
                HAND_TOLERANCE
            };
            if !left.all(|(a, b)| a.abs_diff(*b) <= tolerance) {
                same(&(in_memory, left_in_memory), &(on_server, left_on_server))?;
            }
        }
        Ok(())
    }
}

fn is_about_permits(message: &StoreEvent) -> bool {
    matches!(message, StoreEvent::OtherPermits { .. })
}

fn same<T: PartialEq + Debug>(in_memory: &T, on_server: &T) -> Result<(), String> {
    if in_memory == on_server {
        Ok(())
    } else {
        Err(format!(
            "in memory: {in_memory:?}\non server: {on_server:?}"
        ))
    }
}
