//! Random sequences of operations produce the same replies, grants and final state on the memory
//! store and on Redis.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
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
mod reply;
mod rules;
mod side;
mod step;

use op::{Op, Sequence};
use reply::{Observed, Reply};
use side::{InMemory, InRedis};
use step::Step;

const CASES: u32 = 13_000;

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

/// Returns the number of sequences, which the environment can set.
fn cases() -> u32 {
    let text = std::env::var("DISTLOCK_SEEDS");
    text.map_or(CASES, |text| {
        text.parse().expect("DISTLOCK_SEEDS is not a number")
    })
}

#[test]
fn memory_and_redis_give_the_same_replies() {
    let tally = match Bench::run_sequences(Scripts::bundled(), op::sequences(), cases(), u32::MAX) {
        Ok(tally) => tally,
        Err(difference) => panic!("{difference}"),
    };
    // Shown with `--nocapture`, to choose the weights of the operations.
    println!("{tally:?}");
    // A lower number of sequences need not have every kind.
    for kind in reply::KINDS.iter().filter(|_| cases() >= CASES) {
        let times = tally.get(kind).copied().unwrap_or(0);
        assert!(
            times >= MIN_REPLIES,
            "`{kind}` only occurred {times} times: {tally:?}"
        );
    }
}

type Tally = BTreeMap<&'static str, u32>;

struct Bench {
    redis: InRedis,
    /// Every sequence has its own keys, so that nothing has to be flushed.
    sequence: u64,
    /// Set if the last sequence was aborted, so that its grants may still be in flight.
    broke_off: bool,
    /// The number of replies of each kind, because equal rejections alone would prove little.
    tally: Tally,
}

impl Bench {
    /// Runs sequences until the stores differ. Returns how often each kind of reply occurred.
    fn run_sequences(
        scripts: Arc<Scripts>,
        sequences: BoxedStrategy<Sequence>,
        cases: u32,
        max_shrink_iters: u32,
    ) -> Result<Tally, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let bench = RefCell::new(Bench {
            redis: runtime.block_on(InRedis::start(scripts)),
            sequence: 0,
            broke_off: false,
            tally: BTreeMap::new(),
        });
        let mut runner = TestRunner::new(Config {
            cases,
            failure_persistence: None,
            max_shrink_iters,
            // Much cheaper, and no attacker is involved.
            rng_algorithm: RngAlgorithm::XorShift,
            ..Config::default()
        });
        let compare = |sequence: Sequence| bench.borrow_mut().compare(&runtime, &sequence);
        let result = runner.run(&sequences, compare);
        result.map_err(|error| error.to_string())?;
        Ok(bench.into_inner().tally)
    }

    fn compare(&mut self, runtime: &Runtime, sequence: &Sequence) -> Result<(), TestCaseError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let started = Instant::now();
            match runtime.block_on(self.run(sequence)) {
                Err(_) if started.elapsed() > CALM && attempts < 20 => {}
                same => return same.map_err(TestCaseError::fail),
            }
        }
    }

    async fn run(&mut self, sequence: &Sequence) -> Result<(), String> {
        self.sequence += 1;
        let name = format!("sequence:{}", self.sequence);
        let keys = [format!("{{{name}}}:b"), format!("{{{name}}}:c"), name];
        let redis = &mut self.redis;
        if std::mem::replace(&mut self.broke_off, true) {
            for client in 0..CLIENTS {
                redis.messages(client).await;
            }
        }
        let mut both = Both {
            keys: keys.map(|key| LockKey::new(&key).unwrap()),
            kinds: sequence.kinds,
            memory: InMemory::new(redis.clients()),
            redis,
            observed_in_memory: Observed::of(sequence.kinds),
            observed_in_redis: Observed::of(sequence.kinds),
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
            let result = both.step(&step).await;
            kinds.extend(result.map_err(|why| format!("operation {number}, {step:?}\n{why}"))?);
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
    redis: &'a mut InRedis,
    observed_in_memory: Observed,
    observed_in_redis: Observed,
}

impl Both<'_> {
    fn note_kinds(&mut self) {
        for (kind, key) in self.kinds.iter_mut().zip(&self.keys) {
            *kind = self.memory.kind(key).unwrap_or(*kind);
        }
    }

    async fn step(&mut self, step: &Step) -> Result<Vec<&'static str>, String> {
        let keys = &self.keys;
        self.memory.tick();
        self.observed_in_memory.start();
        self.observed_in_redis.start();
        self.memory.meddle(keys, step);
        let full = self.memory.finds_full(keys, step);
        let obstacles = self.memory.obstacles(keys, step);
        // A queue check of all locks shares the limit.
        if self.memory.queued(keys) >= PER_CALL {
            self.observed_in_memory.ignore_since();
            self.observed_in_redis.ignore_since();
        }
        let in_memory = step
            .reply(&self.memory.stores, keys, &mut self.observed_in_memory)
            .await;
        self.redis.meddle(keys, step);
        let in_redis = step
            .reply(&self.redis.stores, keys, &mut self.observed_in_redis)
            .await;
        same(&in_memory, &in_redis)?;
        if let (Step::Acquire { key, .. }, Reply::Acquire(AcquireReply::WrongKind { existing, .. })) =
            (step, &in_memory)
            && *existing != LockKind::Mutex
        {
            // In Redis, the acquire of a mutex may have raised the fence.
            let ahead = Step::Op(Op::Ahead { key: *key });
            self.memory.meddle(keys, &ahead);
            self.redis.meddle(keys, &ahead);
            self.observed_in_memory.behind(*key);
            self.observed_in_redis.behind(*key);
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
            let messages = self.memory.messages(client);
            // Redis is read only for due messages, to save round trips. `end` finds others.
            if !messages.is_empty() {
                kinds.extend(messages.iter().map(|message| match message {
                    StoreEvent::Granted(_) => "granted",
                    StoreEvent::OtherPermits { .. } => "other number of permits",
                    _ => "revocation received",
                }));
                self.messages(client, messages).await?;
            }
        }
        Ok(kinds)
    }

    async fn messages(&mut self, client: usize, in_memory: Vec<StoreEvent>) -> Result<(), String> {
        let in_redis = self.redis.messages(client).await;
        let rank = |observed: &mut Observed, messages: Vec<StoreEvent>| -> Vec<_> {
            let messages = messages.into_iter();
            let mut texts: Vec<_> = messages
                .map(|message| observed.message(client, &self.keys, message))
                .collect();
            // A script revokes the holds of a counted lock in any order, and then grants.
            let revoked = texts.iter().filter(|text| text.contains("revoked")).count();
            texts[..revoked].sort_unstable();
            // It comes with the reply, which a grant to the same client may overtake.
            texts.sort_by_key(|text| text.contains("differs"));
            texts
        };
        same(
            &rank(&mut self.observed_in_memory, in_memory),
            &rank(&mut self.observed_in_redis, in_redis),
        )
    }

    /// Lets both stores remove what has expired, and checks that no message remains, and that the
    /// locks have the same state and remaining times.
    async fn end(&mut self) -> Result<(), String> {
        self.note_kinds();
        self.step(&Step::last(self.kinds)).await?;
        for client in 0..CLIENTS {
            self.messages(client, Vec::new()).await?;
        }
        for (at, key) in self.keys.iter().enumerate() {
            let (mut in_memory, mut in_redis) =
                (self.memory.snapshot(key), self.redis.snapshot(key));
            let left_in_memory = self.observed_in_memory.snapshot(at, &mut in_memory);
            let left_in_redis = self.observed_in_redis.snapshot(at, &mut in_redis);
            same(&in_memory, &in_redis)?;
            let mut left = left_in_memory.iter().zip(&left_in_redis);
            if !left.all(|(a, b)| a.abs_diff(*b) <= TOLERANCE) {
                same(&(in_memory, left_in_memory), &(in_redis, left_in_redis))?;
            }
        }
        Ok(())
    }
}

fn same<T: PartialEq + Debug>(in_memory: &T, in_redis: &T) -> Result<(), String> {
    if in_memory == in_redis {
        Ok(())
    } else {
        Err(format!("in memory: {in_memory:?}\nin Redis:  {in_redis:?}"))
    }
}
