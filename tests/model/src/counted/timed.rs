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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: u8,
    /// The expiries of the records.
    records: [Option<u8>; TTLS.len()],
    next_expiry: u8,
    /// An upper bound of all times at which a record was written.
    at: u8,
    /// Set if a script has counted a record that has expired, or that lives for too long.
    miscounted: bool,
    faults: Faults,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    /// A script that changes no record.
    Serve,
    Grant(usize),
    Release(usize),
    Renew(usize),
    StepBack(u8),
    Tick,
}

impl Timed {
    /// Recounts if necessary, as every script that serves does first.
    fn read_state(&self, state: &mut State) {
        let (rules, now) = (&self.0.rules, state.now);
        let is_due = now >= state.next_expiry && rules.recounts_when_due;
        let recounts = is_due || now < state.at && rules.recounts_after_step;
        if recounts {
            (state.next_expiry, state.at) = (u8::MAX, now);
        }
        for (record, ttl) in state.records.iter_mut().zip(TTLS) {
            if recounts {
                *record = record.filter(|expires| *expires > now);
                let limit = if rules.recount_shortens {
                    now + ttl
                } else {
                    u8::MAX
                };
                *record = record.map(|expires| expires.min(limit));
                state.next_expiry =
                    record.map_or(state.next_expiry, |it| it.min(state.next_expiry));
            }
            state.miscounted |=
                record.is_some_and(|expires| !(now + 1..=now + ttl).contains(&expires));
        }
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
    type Action = Action;
    type Trace = ();
    const TICK: Action = Action::Tick;

    fn trace(&self) {}

    fn initial(&self) -> State {
        State {
            now: START,
            records: [None; TTLS.len()],
            next_expiry: u8::MAX,
            at: 0,
            miscounted: false,
            faults: self.0.faults,
        }
    }

    fn steps(&self, state: &State, steps: &mut Vec<Action>) {
        steps.push(Action::Serve);
        for (holder, record) in state.records.iter().enumerate() {
            match record {
                None => steps.push(Action::Grant(holder)),
                // A renewal looks at its own record only.
                Some(expires) if *expires > state.now => {
                    steps.extend([Action::Release(holder), Action::Renew(holder)]);
                }
                Some(_) => {}
            }
        }
        if state.faults.clock_steps > 0 {
            steps.extend((1..=START.min(state.now)).map(Action::StepBack));
        }
        steps.extend((state.now < END).then_some(Action::Tick));
    }

    fn after(&self, state: &State, action: Action) -> State {
        let (rules, mut next) = (&self.0.rules, *state);
        if matches!(
            action,
            Action::Serve | Action::Grant(_) | Action::Release(_)
        ) {
            self.read_state(&mut next);
        }
        match action {
            Action::Serve => {}
            Action::Grant(holder) => {
                next.at = next.now;
                Self::write(&mut next, holder, rules.grant_lowers_expiry);
            }
            Action::Release(holder) => {
                next.at = next.now;
                next.records[holder] = None;
            }
            Action::Renew(holder) => {
                if !rules.renewal_keeps_time || next.at < next.now {
                    next.at = next.now;
                }
                Self::write(&mut next, holder, rules.renewal_lowers_expiry);
            }
            Action::StepBack(ticks) => {
                next.faults.clock_steps -= 1;
                next.now -= ticks;
            }
            Action::Tick => next.now += 1,
        }
        if next.records == [None; TTLS.len()] {
            (next.next_expiry, next.at) = (u8::MAX, 0);
        }
        next
    }

    fn holds(&self, _: Claim, state: &State) -> bool {
        !state.miscounted
    }
}
