//! Liveness: from any state, what happens if nothing bad happens any more?
//!
//! All continuations are followed in which everybody is prompt: no fault, no new call, bodies end, and a tick
//! passes when nothing is left to do. What is known of a state is remembered, so each is walked once.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::action::Action;
use crate::config::{Config, Faults};
use crate::state::{Call, State, Wrongs};

/// A system that can be left to itself.
pub(crate) trait Prompt {
    type State: Copy + Eq + Hash;
    type Action: Copy;

    /// The state without what may still go wrong, and without what did: it does not matter from here on.
    fn calmed(&self, state: &Self::State) -> Self::State;
    /// What may come next if everybody is prompt.
    fn prompt(&self, state: &Self::State) -> Vec<Self::Action>;
    fn next(&self, state: &Self::State, action: Self::Action) -> Self::State;
    fn is_tick(&self, action: Self::Action) -> bool;
    /// Nobody who lives waits, runs a body, or takes anything back.
    fn is_served(&self, state: &Self::State) -> bool;
}

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
    pub(crate) fn ticks<P: Prompt>(&self, system: &P, state: &P::State) -> Option<u8> {
        let path = &mut Known::default();
        let ticks = self.worst(system, &system.calmed(state), path);
        (ticks != NEVER).then_some(ticks)
    }

    fn worst<P: Prompt>(&self, system: &P, state: &P::State, path: &mut Known) -> u8 {
        if system.is_served(state) {
            return 0;
        }
        let key = self.hasher.hash_one(state);
        if let Some(ticks) = self.shard(key).get(&key) {
            return *ticks;
        }
        if path.insert(key, UNDER_WAY).is_some() {
            return NEVER;
        }
        let steps = system.prompt(state);
        // Whoever has something to do and cannot is stuck.
        let mut worst = if steps.is_empty() { NEVER } else { 0 };
        for action in steps {
            let ticks = self.worst(system, &system.next(state, action), path);
            worst = worst.max(if ticks == NEVER {
                NEVER
            } else {
                (ticks + u8::from(system.is_tick(action))).min(UNDER_WAY)
            });
        }
        path.remove(&key);
        self.shard(key).insert(key, worst);
        worst
    }

    /// The worst that a prompt system may do from here, until all are served or it goes round in a circle.
    pub(crate) fn worst_course<P: Prompt>(&self, system: &P, state: &P::State) -> Vec<P::Action> {
        let mut state = system.calmed(state);
        let mut course = Vec::new();
        let mut seen = Vec::new();
        while !system.is_served(&state) && !seen.contains(&state) {
            seen.push(state);
            let judged = system.prompt(&state).into_iter().map(|action| {
                let next = system.next(&state, action);
                (self.ticks(system, &next).unwrap_or(NEVER), action, next)
            });
            let Some((_, action, next)) = judged.max_by_key(|(ticks, ..)| *ticks) else {
                break;
            };
            course.push(action);
            state = next;
        }
        course
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, Known> {
        self.known[(key >> 60) as usize % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Prompt for Config {
    type State = State;
    type Action = Action;

    fn calmed(&self, state: &State) -> State {
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

    fn prompt(&self, state: &State) -> Vec<Action> {
        let mut steps = Vec::with_capacity(16);
        self.steps(state, &mut steps);
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

    fn next(&self, state: &State, action: Action) -> State {
        let mut next = self.after(state, action);
        next.last = (0, false);
        next
    }

    fn is_tick(&self, action: Action) -> bool {
        action == Action::Tick
    }

    fn is_served(&self, state: &State) -> bool {
        state
            .clients
            .iter()
            .all(|client| client.crashed || client.call == Call::Idle && client.undo.is_empty())
    }
}
