//! The bookkeeping by the server's clock: which scripts recount the holders.
//!
//! A record has an expiry. Besides the records, the server stores a lower bound of all expiries and
//! an upper bound of all times at which a record was written. A script recounts once the clock has
//! reached the first, or is behind the second because it stepped back.

use super::config::{Config, Faults};
use crate::explore::{Claim, Protocol};

/// The durations for which the records live, in ticks.
const TTLS: [u8; 2] = [1, 3];
const START: u8 = 3;
const END: u8 = 6;

pub(crate) struct Timed(pub(crate) Config);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: u8,
    /// The expiries of the records.
    records: [Option<u8>; TTLS.len()],
    /// A lower bound of all expiries.
    next_expiry: u8,
    /// An upper bound of all times at which a record was written.
    at: u8,
    /// Set if a script has counted a record that has expired, or that lives for too long.
    miscounted: bool,
    faults: Faults,
}

impl Timed {
    /// Recounts if necessary, as every script that serves does first.
    fn read_state(&self, mut state: State) -> State {
        let (rules, now) = (&self.0.rules, state.now);
        let is_due = now >= state.next_expiry && rules.recounts_when_due;
        let recounts = is_due || now < state.at && rules.recounts_after_step;
        if recounts {
            (state.next_expiry, state.at) = (u8::MAX, now);
        }
        for (record, ttl) in state.records.iter_mut().zip(TTLS) {
            if recounts {
                *record = record.filter(|expires| *expires > now);
                let longest = if rules.recount_shortens { ttl } else { END };
                *record = record.map(|expires| expires.min(now + longest));
                state.next_expiry = state.next_expiry.min(record.unwrap_or(u8::MAX));
            }
            let lasts = |expires: u8| expires > now && expires <= now + ttl;
            state.miscounted |= !record.is_none_or(lasts);
        }
        state
    }

    fn write(state: &mut State, holder: usize, lowers_expiry: bool) {
        let expires = state.now + TTLS[holder];
        state.records[holder] = Some(expires);
        if lowers_expiry {
            state.next_expiry = state.next_expiry.min(expires);
        }
    }
}

impl Protocol for Timed {
    type State = State;
    /// A step, and the state after it.
    type Action = (&'static str, State);
    type Trace = ();

    fn trace(&self) {}

    fn initial(&self) -> State {
        State {
            now: START,
            faults: self.0.faults,
            ..State::default()
        }
    }

    fn steps(&self, state: &State, steps: &mut Vec<Self::Action>) {
        let (rules, now) = (&self.0.rules, state.now);
        let mut add = |step, mut next: State| {
            if next.records == [None; TTLS.len()] {
                (next.next_expiry, next.at) = (0, 0);
            }
            steps.push((step, next));
        };
        let read = self.read_state(*state);
        add("script that changes no record", read);
        for holder in 0..TTLS.len() {
            let mut next = State { at: now, ..read };
            if next.records[holder].take().is_some() {
                add("release", next);
            } else {
                Self::write(&mut next, holder, rules.grant_lowers_expiry);
                add("grant", next);
            }
            // A renewal looks at its own record only.
            if state.records[holder].is_some_and(|expires| expires > now) {
                let mut next = *state;
                let kept = if rules.renewal_keeps_time { next.at } else { 0 };
                next.at = kept.max(now);
                Self::write(&mut next, holder, rules.renewal_lowers_expiry);
                add("renewal", next);
            }
        }
        if state.faults.clock_steps > 0 {
            let faults = state.faults.clock_steps(state.faults.clock_steps - 1);
            (now.saturating_sub(START)..now).for_each(|now| {
                add(
                    "step back",
                    State {
                        now,
                        faults,
                        ..*state
                    },
                )
            });
        }
        if now < END {
            let now = now + 1;
            add("tick", State { now, ..*state });
        }
    }

    fn after(&self, _: &State, (_, next): Self::Action) -> State {
        next
    }

    fn holds(&self, _: Claim, state: &State) -> bool {
        !state.miscounted
    }
}
