//! Liveness: from any state, what happens if nothing bad happens any more?
//!
//! The continuation is deterministic: everything that can be done is done, then a tick passes. So it is a
//! chain of states, most of which were met before, and the answer is remembered for each.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use crate::action::Action;
use crate::config::{Config, Faults};
use crate::state::{Call, State, Wrongs};

/// Two extremes of what a calm system may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Manner {
    /// Old connections are never noticed by the server and their commands are applied; bodies end before
    /// they confirm; the first client acts first.
    Lingering,
    /// Old connections are dropped; bodies confirm; the last client acts first.
    Tidy,
}

const SHARDS: usize = 16;

/// A chain that is longer than this has no end.
const LONGEST: usize = 1_000;

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
    /// Ticks until everybody is served, whatever the manner; `None` if that is never.
    pub(crate) fn ticks(&self, config: &Config, state: &State) -> Option<u8> {
        let lingering = self.ticks_in(config, state, Manner::Lingering)?;
        let tidy = self.ticks_in(config, state, Manner::Tidy)?;
        Some(lingering.max(tidy))
    }

    fn ticks_in(&self, config: &Config, state: &State, manner: Manner) -> Option<u8> {
        // Neither what may still go wrong nor what did matters from here on.
        let mut state = State {
            faults: Faults::default(),
            wrongs: Wrongs::default(),
            last: (0, false),
            ..*state
        };
        for client in &mut state.clients {
            client.calls = 0;
        }
        let mut chain = Vec::new();
        let mut steps = Vec::new();
        let mut left = loop {
            if is_served(&state) {
                break 0;
            }
            let key = self.hasher.hash_one((&state, manner));
            if let Some(ticks) = self.shard(key).get(&key) {
                break *ticks;
            }
            let action = next(config, &state, manner, &mut steps);
            chain.push((key, action == Action::Tick));
            if chain.len() > LONGEST {
                return None;
            }
            state = config.after(&state, action);
            state.last = (0, false);
        };
        for (key, is_tick) in chain.into_iter().rev() {
            left += u8::from(is_tick);
            self.shard(key).insert(key, left);
        }
        Some(left)
    }

    fn shard(&self, key: u64) -> std::sync::MutexGuard<'_, Known> {
        self.known[(key >> 60) as usize % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a calm system does next.
fn next(config: &Config, state: &State, manner: Manner, steps: &mut Vec<Action>) -> Action {
    steps.clear();
    config.steps(state, steps);
    steps
        .iter()
        .filter_map(|action| Some((rank(*action, manner)?, *action)))
        .min_by_key(|(rank, _)| *rank)
        .map_or(Action::Tick, |(_, action)| action)
}

/// Where a calm system is so many ticks later, or when all are served.
pub(crate) fn later(config: &Config, state: &State, ticks: u32) -> State {
    let mut state = *state;
    let mut steps = Vec::new();
    let mut left = ticks;
    for _ in 0..LONGEST {
        if left == 0 || is_served(&state) {
            break;
        }
        let action = next(config, &state, Manner::Lingering, &mut steps);
        left -= u32::from(action == Action::Tick);
        config.apply(&mut state, action);
    }
    state
}

/// Nobody who lives waits, runs a body, or takes anything back.
fn is_served(state: &State) -> bool {
    state
        .clients
        .iter()
        .all(|client| client.crashed || client.call == Call::Idle && client.undo.is_empty())
}

/// What comes first; `None`: never.
fn rank(action: Action, manner: Manner) -> Option<(u8, usize)> {
    let tidy = manner == Manner::Tidy;
    let (first, client) = match action {
        Action::Accept => (0, 0),
        Action::Read(c) => (1, c),
        Action::Believe(c) => (if tidy { 3 } else { 2 }, c),
        Action::ConfirmFirst(c) => (if tidy { 2 } else { 3 }, c),
        Action::Again(c) => (4, c),
        Action::Confirm(c) => (if tidy { 5 } else { 7 }, c),
        Action::End(c) => (6, c),
        Action::Release(c, _) => (8, c),
        Action::Ask(c) => (9, c),
        Action::Serve(c) => (10, c),
        Action::ServeOld(c) if !tidy => (11, c),
        Action::DropOld(c) if tidy => (11, c),
        Action::Notice(c) => (12, c),
        Action::Reconnect(c) => (13, c),
        Action::Look(c) => (14, c),
        Action::TimeOut(c) => (15, c),
        Action::Tick => (16, 0),
        _ => return None,
    };
    Some((first, if tidy { 9 - client } else { client }))
}
