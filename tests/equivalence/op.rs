//! Random operations.

use std::time::Duration;

use once_cell::sync::Lazy;
use proptest::prelude::*;

use super::keys::SELECTORS;
use super::{CLIENTS, KEYS};
use crate::error::LockKind;
use crate::protocol::kind::Kind;
use crate::protocol::messages::OwnerId;
use crate::protocol::once::Once;
use crate::protocol::timing::Timing;

/// The number of owners of each client in one sequence.
pub(super) const OWNERS: u64 = 5;
/// The first owner, with as many digits as real ones, which are random.
pub(super) const FIRST: u64 = 18_000_000_000_000_000_000;

/// Numbers of entries to add: more than one call removes, and more than one call checks.
const MANY: u64 = 120;
const VERY_MANY: u64 = 600;

/// The `wait` of operations that wait.
pub(super) const WAIT: Duration = Duration::from_secs(60);

/// The `min_hold` of releases that keep the key.
const KEEP: Duration = Duration::from_secs(20);

/// The maximum length of a sequence.
const LONGEST: usize = 30;

/// A sequence of operations, and the kind of each lock in most of them.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) kinds: [LockKind; KEYS],
    pub(super) ops: Vec<Op>,
}

/// An operation of a client, or an event on a server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Act {
        pick: Pick,
        key: usize,
        act: Act,
    },
    /// Several keys in one step. If all are acquired, they may be renewed and released at once.
    AcquireAll {
        client: usize,
        keys: Several,
        /// The owner of the first key. Every other key has another one.
        owner: OwnerId,
        timing: Timing,
        is_released: bool,
    },
    /// All keys in one batch, with right or wrong tokens.
    Renew {
        picks: [Pick; KEYS],
        right: [bool; KEYS],
        timing: Timing,
    },
    /// A queue check for all owners of a client on all keys.
    CheckQueue {
        client: usize,
    },
    Inspect {
        client: usize,
        key: usize,
    },
    /// Revokes a hold, with the right or a wrong token.
    Revoke {
        client: usize,
        key: usize,
        right: bool,
        delete: bool,
    },
    /// Deletes the lock's key, as its expiry does.
    DeleteHolds {
        key: usize,
    },
    /// Deletes all keys of the lock, as FLUSHALL does.
    DeleteAll {
        key: usize,
    },
    /// Adds entries at the end of a queue, of one of our clients or of an absent one.
    Enter {
        client: Option<usize>,
        key: usize,
        count: u64,
    },
    /// Lets the deadline of an entry pass.
    Lapse {
        nth: usize,
        key: usize,
    },
    /// Sets the last token an hour ahead, as after a backward step of the server's clock.
    Ahead {
        key: usize,
    },
    /// Lets one holder of a counted lock expire.
    Expire {
        nth: usize,
        key: usize,
    },
    /// Steps the server's clock back by an hour, as far as the holders of a counted lock notice.
    StepBack {
        key: usize,
    },
    /// Shifts the acquisition of the hold of a mutex, as time does and a step of the clock.
    ShiftHold {
        key: usize,
        hours: i64,
    },
    /// Shifts the acquisitions in the success records.
    ShiftRecords {
        key: usize,
        hours: i64,
    },
    DeleteRecord {
        client: usize,
        key: usize,
        once: usize,
    },
    /// Lets the last grant of a counted lock to a client expire unconfirmed.
    Silence {
        client: usize,
        key: usize,
    },
}

/// An operation of an owner.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Acquire {
        /// Chooses among the requests of the lock's kind.
        choice: u32,
        is_other_kind: bool,
        timing: Timing,
        wait: Duration,
        /// Chooses what a mutex protects at most once, like those below.
        once: Option<usize>,
        /// True while a transaction has checked in the holders, which expire meanwhile.
        pinned: bool,
    },
    Confirm {
        timing: Timing,
        once: Option<usize>,
    },
    /// With the right or a wrong token, of a counted lock.
    Downgrade {
        right: bool,
        timing: Timing,
    },
    Release {
        keep_for: Duration,
        /// With the right or a wrong token.
        success: Option<(usize, bool)>,
        /// True after an acquire that may still arrive.
        unanswered: bool,
    },
}

/// What calls do at most once: in two periods with one record, and for a value. Shifts of an hour
/// end on both sides of these gaps, and none on a gap.
pub(super) static ONCE: Lazy<[Once; 3]> = Lazy::new(|| {
    let minutes = |n: u64| Duration::from_secs(60 * n);
    let [period, value] = SELECTORS;
    [(period, 30), (period, 90), (value, 90)].map(|(selector, gap)| Once {
        gap: minutes(gap),
        ttl: minutes(2 * gap),
        selector: selector.to_owned(),
    })
});

/// Keys that are acquired together.
pub(super) type Several = &'static [usize];

/// The acting owner. Without a look at the lock, few operations would meet its holder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pick {
    pub(super) by: By,
    /// Used if no owner is found by `by`.
    pub(super) client: usize,
    pub(super) owner: OwnerId,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    /// By the number of the holder, of which a mutex has one.
    Holder(usize),
    /// By the position in the queue, from its head.
    Waiting(usize),
    Number,
}

pub(super) fn sequences() -> BoxedStrategy<Sequence> {
    let any = any_sequence([kind(), kind(), kind()], 0.2, 1);
    prop_oneof![10 => any, 3 => after_success()].boxed()
}

/// Returns sequences on counted locks.
pub(super) fn on_counted() -> BoxedStrategy<Sequence> {
    let counted = || kind().prop_filter("a counted lock", |kind| *kind != LockKind::Mutex);
    // Without steps back, few sequences would show rule K4.
    any_sequence([counted(), counted(), counted()], 0.01, 10)
}

/// Returns sequences on mutexes.
pub(super) fn on_mutexes() -> BoxedStrategy<Sequence> {
    any_sequence([Just(LockKind::Mutex); KEYS], 0.01, 1)
}

fn any_sequence(
    kinds: [impl Strategy<Value = LockKind> + 'static; KEYS],
    once_share: f64,
    step_back: u32,
) -> BoxedStrategy<Sequence> {
    let some = |most: usize| prop::collection::vec(op(once_share, step_back), 1..=most);
    let crowded = (crowd(), some(LONGEST / 3)).prop_map(|(crowd, then)| [crowd, then].concat());
    let ops = prop_oneof![12 => some(LONGEST), 1 => crowded];
    (kinds, ops)
        .prop_map(|(kinds, ops)| Sequence { kinds, ops })
        .boxed()
}

/// Returns sequences about the success record of a mutex.
pub(super) fn after_success() -> BoxedStrategy<Sequence> {
    let then = prop_oneof![1 => op(0.8, 1), 1 => op_of_record()];
    let then = prop::collection::vec(then, 1..=LONGEST);
    let sequence = (success(), then).prop_map(|(success, then)| Sequence {
        kinds: [LockKind::Mutex; KEYS],
        ops: [success, then].concat(),
    });
    sequence.boxed()
}

fn kind() -> impl Strategy<Value = LockKind> {
    prop_oneof![
        2 => Just(LockKind::Mutex),
        1 => Just(LockKind::ReadWrite),
        1 => Just(LockKind::Semaphore { permits: 3 }),
    ]
}

/// Returns one of the requests of a kind of lock, or a request of another kind.
pub(super) fn request(kind: LockKind, choice: u32, is_other_kind: bool) -> Kind {
    match (kind, is_other_kind) {
        (LockKind::Mutex, false) => Kind::Mutex,
        (LockKind::ReadWrite, false) if choice % 4 < 3 => Kind::Read,
        (LockKind::ReadWrite, false) => Kind::Write,
        (LockKind::ReadWrite, true) => Kind::Mutex,
        (LockKind::Semaphore { permits }, false) => {
            let permits = match choice {
                6 => 5,
                7 => 1,
                _ => permits,
            };
            let weight = 1 + choice % permits;
            Kind::Permits { permits, weight }
        }
        (LockKind::Mutex | LockKind::Semaphore { .. }, true) => Kind::Read,
    }
}

/// Returns operations that queue more entries for a free lock than one script handles, rare by
/// chance: dead ones, or another client's before those of a client with an expired grant.
fn crowd() -> impl Strategy<Value = Vec<Op>> {
    (0..CLIENTS, 1..CLIENTS, prop::bool::ANY).prop_map(|(client, next, dead)| {
        let key = 0;
        let enter = |client, count| Op::Enter { client, key, count };
        let other = (client + next) % CLIENTS;
        let check = |client| Op::CheckQueue { client };
        if dead {
            vec![enter(None, VERY_MANY), enter(Some(client), 1), check(other)]
        } else {
            vec![
                enter(Some(client), 1),
                enter(Some(other), VERY_MANY),
                enter(Some(client), MANY),
                check(client),
                Op::DeleteHolds { key },
                check(other),
            ]
        }
    })
}

/// Returns a success, while another owner waits, and what may happen to its record.
fn success() -> impl Strategy<Value = Vec<Op>> {
    let owner = |owner| Pick {
        by: By::Number,
        client: 0,
        owner: OwnerId(owner),
    };
    let act = |owner, act| Op::Act {
        pick: owner,
        key: 0,
        act,
    };
    (once(), once(), timing()).prop_map(move |(first, second, timing)| {
        let acquire = |once| Act::Acquire {
            choice: 0,
            is_other_kind: false,
            timing,
            wait: WAIT,
            once: Some(once),
            pinned: false,
        };
        let release = release_after_success(first);
        vec![
            act(owner(FIRST), acquire(first)),
            act(owner(FIRST + 1), acquire(second)),
            act(owner(FIRST), release),
        ]
    })
}

fn release_after_success(once: usize) -> Act {
    Act::Release {
        keep_for: Duration::ZERO,
        success: Some((once, true)),
        unanswered: false,
    }
}

/// Most calls are about the same record.
fn once() -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(0), 1 => Just(1), 1 => Just(2_usize)]
}

/// Returns an operation on the success records of the first key, or on their times.
fn op_of_record() -> impl Strategy<Value = Op> {
    let hours = || prop_oneof![3 => Just(-1), 1 => Just(1_i64)];
    let key = 0;
    prop_oneof![
        2 => hours().prop_map(move |hours| Op::ShiftHold { key, hours }),
        4 => hours().prop_map(move |hours| Op::ShiftRecords { key, hours }),
        1 => (0..CLIENTS, once()).prop_map(move |(client, once)| Op::DeleteRecord { client, key, once }),
        2 => (0..CLIENTS, FIRST..FIRST + 2, once()).prop_map(move |(client, owner, once)| Op::Act {
            pick: Pick { by: By::Number, client, owner: OwnerId(owner) },
            key,
            act: release_after_success(once),
        }),
        2 => (pick(8, 1, 1), once(), timing()).prop_map(move |(pick, once, timing)| Op::Act {
            pick,
            key,
            act: Act::Confirm { timing, once: Some(once) },
        }),
    ]
}

/// `once_share` is the share of calls that run at most once, and `step_back` the weight of steps of
/// the server's clock.
fn op(once_share: f64, step_back: u32) -> impl Strategy<Value = Op> {
    // Some keys are more contended than others.
    let key = || prop_oneof![24 => Just(0), 7 => Just(1), 1 => Just(2_usize)];
    let client = || 0..CLIENTS;
    let right = || prop::bool::weighted(0.8);
    let maybe_once = || prop::option::weighted(once_share, once());
    let act = |pick, key, act| Op::Act { pick, key, act };
    prop_oneof![
        24 => (
            pick(1, 1, 8), key(), 0..8_u32, prop::bool::weighted(0.05), timing(), sometimes(0.85, WAIT),
            maybe_once(), prop::bool::weighted(0.1),
        )
            .prop_map(move |(pick, key, choice, is_other_kind, timing, wait, once, pinned)| {
                act(pick, key, Act::Acquire { choice, is_other_kind, timing, wait, once, pinned })
            }),
        4 => (pick(4, 1, 1), key(), timing(), maybe_once()).prop_map(
            move |(pick, key, timing, once)| act(pick, key, Act::Confirm { timing, once })
        ),
        4 => (pick(9, 1, 1), key(), right(), timing()).prop_map(
            move |(pick, key, right, timing)| act(pick, key, Act::Downgrade { right, timing })
        ),
        10 => (
            pick(5, 2, 1), key(), sometimes(0.15, KEEP), prop::option::weighted(once_share, (once(), right())),
            prop::bool::ANY,
        )
            .prop_map(move |(pick, key, keep_for, success, unanswered)| {
                act(pick, key, Act::Release { keep_for, success, unanswered })
            }),
        3 => (client(), several(), FIRST..FIRST + OWNERS, timing(), prop::bool::ANY).prop_map(
            |(client, keys, owner, timing, is_released)| {
                Op::AcquireAll { client, keys, owner: OwnerId(owner), timing, is_released }
            }
        ),
        3 => ([pick(4, 1, 1), pick(4, 1, 1), pick(4, 1, 1)], [right(), right(), right()], timing())
            .prop_map(|(picks, right, timing)| Op::Renew { picks, right, timing }),
        7 => client().prop_map(|client| Op::CheckQueue { client }),
        2 => (client(), key()).prop_map(|(client, key)| Op::Inspect { client, key }),
        10 => (client(), key(), right(), prop::bool::ANY)
            .prop_map(|(client, key, right, delete)| Op::Revoke { client, key, right, delete }),
        3 => key().prop_map(|key| Op::DeleteHolds { key }),
        1 => key().prop_map(|key| Op::DeleteAll { key }),
        6 => (prop::option::of(client()), key(), prop_oneof![4 => Just(1), 1 => Just(MANY)])
            .prop_map(|(client, key, count)| Op::Enter { client, key, count }),
        5 => (0..4_usize, key()).prop_map(|(nth, key)| Op::Lapse { nth, key }),
        // The other keys are often free, as `AcquireAll` needs them to find a later token.
        2 => (0..KEYS).prop_map(|key| Op::Ahead { key }),
        2 => (0..4_usize, key()).prop_map(|(nth, key)| Op::Expire { nth, key }),
        step_back => key().prop_map(|key| Op::StepBack { key }),
        2 => (client(), key()).prop_map(|(client, key)| Op::Silence { client, key }),
    ]
}

fn several() -> impl Strategy<Value = Several> {
    prop_oneof![
        1 => Just(&[0, 1][..]),
        1 => Just(&[2, 0][..]),
        2 => Just(&[1, 2][..]),
        2 => Just(&[0, 1, 2][..]),
    ]
}

fn pick(holder: u32, waiting: u32, number: u32) -> impl Strategy<Value = Pick> {
    let by = prop_oneof![
        holder => (0..4_usize).prop_map(By::Holder),
        waiting => (0..4_usize).prop_map(By::Waiting),
        number => Just(By::Number),
    ];
    (by, 0..CLIENTS, FIRST..FIRST + OWNERS).prop_map(|(by, client, owner)| Pick {
        by,
        client,
        owner: OwnerId(owner),
    })
}

/// The timings of operations. The first is shorter than a grant's lease, and longer than a sequence
/// may take.
pub(super) const TIMINGS: [Timing; 3] = [
    Timing {
        lease: Duration::from_millis(600),
    },
    Timing {
        lease: Duration::from_secs(20),
    },
    Timing {
        lease: Duration::from_secs(200),
    },
];

fn timing() -> impl Strategy<Value = Timing> {
    let [shorter, usual, longer] = TIMINGS;
    prop_oneof![1 => Just(shorter), 2 => Just(usual), 1 => Just(longer)]
}

fn sometimes(probability: f64, duration: Duration) -> impl Strategy<Value = Duration> {
    prop::bool::weighted(probability)
        .prop_map(move |yes| if yes { duration } else { Duration::ZERO })
}
