//! Liveness: the time until all clients are served if no further fault happens.
//!
//! Every prompt continuation is followed. Results are stored, so a state is visited once.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use dashmap::DashMap;

use crate::explore::Protocol;

/// Stands for the ticks of a continuation that repeats itself or gets stuck.
const NEVER: u8 = u8::MAX;

/// The ticks from a state until all live clients are served, by the state's hash.
#[derive(Debug, Default)]
pub(crate) struct Calm {
    known: DashMap<u64, u8>,
    hasher: BuildHasherDefault<DefaultHasher>,
}

impl Calm {
    /// Returns the most ticks that a prompt continuation takes until all are served, or `None` if
    /// one of them never serves all.
    pub(crate) fn ticks<P: Protocol>(&self, protocol: &P, state: &P::State) -> Option<u8> {
        let mut state = *state;
        protocol.calm(&mut state);
        let ticks = self.worst(protocol, &state, &mut HashSet::new());
        (ticks != NEVER).then_some(ticks)
    }

    fn worst<P: Protocol>(&self, protocol: &P, state: &P::State, path: &mut HashSet<u64>) -> u8 {
        if protocol.is_served(state) {
            return 0;
        }
        let key = self.hasher.hash_one(state);
        if let Some(ticks) = self.known.get(&key) {
            return *ticks;
        }
        if !path.insert(key) {
            return NEVER;
        }
        let steps = protocol.prompt_steps(state);
        // A client that is not served and cannot take a step is stuck.
        let mut worst = if steps.is_empty() { NEVER } else { 0 };
        for action in steps {
            let own = u8::from(P::is_tick(&action));
            let ticks = self.worst(protocol, &next(protocol, state, action), path);
            worst = worst.max(if ticks == NEVER {
                NEVER
            } else {
                (ticks + own).min(NEVER - 1)
            });
        }
        path.remove(&key);
        self.known.insert(key, worst);
        worst
    }

    /// Returns the longest continuation, until all are served or it repeats itself: every step with
    /// the state before it, and the last state.
    pub(crate) fn worst_course<P: Protocol>(
        &self,
        protocol: &P,
        mut state: P::State,
    ) -> (Vec<Step<P>>, P::State) {
        protocol.calm(&mut state);
        let mut course: Vec<Step<P>> = Vec::new();
        while !protocol.is_served(&state) && course.iter().all(|(before, _)| *before != state) {
            let ticks = |action: &P::Action| {
                let ticks = self.ticks(protocol, &next(protocol, &state, *action));
                ticks.unwrap_or(NEVER)
            };
            let steps = protocol.prompt_steps(&state);
            let Some(action) = steps.into_iter().max_by_key(ticks) else {
                break;
            };
            course.push((state, action));
            state = next(protocol, &state, action);
        }
        (course, state)
    }
}

/// A step, with the state before it.
type Step<P> = (<P as Protocol>::State, <P as Protocol>::Action);

fn next<P: Protocol>(protocol: &P, state: &P::State, action: P::Action) -> P::State {
    let mut next = protocol.after(state, action);
    protocol.calm(&mut next);
    next
}
