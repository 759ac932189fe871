//! Liveness: from any state, what happens if nothing bad happens any more?
//!
//! All continuations are followed in which everybody is prompt: no fault, no new call, bodies end, and a tick
//! passes when nothing is left to do. What is known of a state is remembered, so each is walked once.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::action::Action;
use crate::config::{Config, Faults};
use crate::state::{Call, State, Wrongs};

const SHARDS: usize = 16;

/// In place of a number of ticks: a continuation goes round in a circle.
const NEVER: u8 = u8::MAX;

/// In place of a number of ticks: it is being found out.
const UNDER_WAY: u8 = NEVER - 1;

/// Keys are hashes already.
#[derive(Default)]
struct Key(u64);

impl Hasher for Key {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers")
    }
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

type Known = HashMap<u64, u8, BuildHasherDefault<Key>>;

/// How many ticks it takes from a state until everybody who waits and lives has been served.
pub(crate) struct Calm {
    known: Vec<Mutex<Known>>,
    hasher: BuildHasherDefault<DefaultHasher>,
}

impl std::fmt::Debug for Calm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calm").finish_non_exhaustive()
    }
}

impl Default for Calm {
    fn default() -> Self {
        Calm {
            known: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: BuildHasherDefault::default(),
        }
    }
}

impl Calm {
    /// The most ticks that any prompt continuation takes until all are served; `None`: one of them
    /// never serves all.
    pub(crate) fn ticks(&self, config: &Config, state: &State) -> Option<u8> {
        let path = &mut Known::default();
        let ticks = self.worst(config, &calmed(state), path);
        (ticks != NEVER).then_some(ticks)
    }

    fn worst(&self, config: &Config, state: &State, path: &mut Known) -> u8 {
        if is_served(state) {
            return 0;
        }
        let key = self.hasher.hash_one(state);
        if let Some(ticks) = self.shard(key).get(&key) {
            return *ticks;
        }
        if path.insert(key, UNDER_WAY).is_some() {
            return NEVER;
        }
        let steps = prompt(config, state);
        // Whoever has something to do and cannot is stuck.
        let mut worst = if steps.is_empty() { NEVER } else { 0 };
        for action in steps {
            let mut next = config.after(state, action);
            next.last = (0, false);
            let ticks = self.worst(config, &next, path);
            worst = worst.max(if ticks == NEVER {
                NEVER
            } else {
                (ticks + u8::from(action == Action::Tick)).min(UNDER_WAY)
            });
        }
        path.remove(&key);
        self.shard(key).insert(key, worst);
        worst
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, Known> {
        self.known[(key >> 60) as usize % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state without what may still go wrong, and without what did: it does not matter from here on.
fn calmed(state: &State) -> State {
    let mut state = State {
        faults: Faults::default(),
        wrongs: Wrongs::default(),
        last: (0, false),
        ..*state
    };
    state.server.refusing = false;
    for client in &mut state.clients {
        client.calls = 0;
    }
    state
}

/// What may come next if everybody is prompt.
fn prompt(config: &Config, state: &State) -> Vec<Action> {
    let mut steps = Vec::with_capacity(16);
    config.steps(state, &mut steps);
    let runs = |call| matches!(call, Call::Holding { .. });
    let is_busy = state.clients.iter().any(|client| runs(client.call));
    steps.retain(|action| match action {
        // A body ends before time passes, so it has no need of renewals.
        Action::Tick => !is_busy,
        Action::Renew(_) => false,
        _ => true,
    });
    steps
}

/// The worst that a prompt system may do from here, until all are served or it goes round in a circle.
pub(crate) fn worst_course(config: &Config, state: &State) -> Vec<Action> {
    let calm = Calm::default();
    let mut state = calmed(state);
    let mut course = Vec::new();
    let mut seen = Vec::new();
    while !is_served(&state) && !seen.contains(&state) {
        seen.push(state);
        let judged = prompt(config, &state).into_iter().map(|action| {
            let mut next = config.after(&state, action);
            next.last = (0, false);
            (calm.ticks(config, &next).unwrap_or(NEVER), action, next)
        });
        let Some((_, action, next)) = judged.max_by_key(|(ticks, ..)| *ticks) else {
            break;
        };
        course.push(action);
        state = next;
    }
    course
}

/// Nobody who lives waits, runs a body, or takes anything back.
pub(crate) fn is_served(state: &State) -> bool {
    state
        .clients
        .iter()
        .all(|client| client.crashed || client.call == Call::Idle && client.undo.is_empty())
}
