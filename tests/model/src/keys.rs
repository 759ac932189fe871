//! A model of calls that hold several locks together.
//!
//! Every lock is a holder and a FIFO queue; a release hands it to the first waiter. A call takes all
//! its locks with one script if all are free, and otherwise one after the other, each through its
//! queue, while it keeps those that it has. It runs its body once it holds all of them. The lock of
//! a call can be lost at any time, and a call can be cancelled at any time.
//!
//! Not modeled: time, and everything that [`lock`](crate::lock) shows for one lock.

use std::fmt;

use crate::List;
use crate::explore::{Claim, Protocol, Report, Search, run};
use crate::rule;
use crate::scenario::{Removal, Scenario, Setup, faults, rules};

const KEYS: usize = 3;
const CLIENTS: usize = 3;

rules! {
    /// All calls take their locks in the same order.
    one_order,
    /// Two keys that name the same lock count once.
    locks_once,
    /// The script takes all locks or none.
    all_or_nothing,
    /// A call that loses a lock before its body gives back all, and starts over.
    start_over,
    /// A cancelled call releases all its locks.
    release_all,
}

faults! {
    /// A call is cancelled.
    cancels,
    /// A lock is lost, and the next waiter has it.
    losses,
}

/// The locks of the calls of each client, as the caller names them.
#[derive(Clone, Copy, Debug)]
pub struct Wants([&'static [u8]; CLIENTS]);

impl fmt::Display for Wants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " of {:?}", self.0)
    }
}

impl Setup for Wants {
    type Rules = Rules;
    type Faults = Faults;

    fn run(scenario: &Config, search: Search) -> Report {
        run(scenario.clone(), &scenario.check, search)
    }
}

/// A scenario of this model.
pub type Config = Scenario<Wants>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Lock {
    holder: Option<u8>,
    queue: List<u8, CLIENTS>,
}

impl Lock {
    fn is_free(&self) -> bool {
        self.holder.is_none() && self.queue.is_empty()
    }

    /// Removes a client, and hands a free lock to the first waiter.
    fn release(&mut self, client: u8) {
        self.queue.retain(|waiter| *waiter != client);
        if self.holder == Some(client) {
            self.holder = None;
        }
        if self.holder.is_none() && !self.queue.is_empty() {
            self.holder = Some(self.queue.remove(0));
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    Acquiring,
    Queued,
    Body,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Call {
    /// The number of calls that are still to be made.
    more: u8,
    phase: Phase,
    /// The number of locks that the call has, in its order.
    taken: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub struct State {
    locks: [Lock; KEYS],
    calls: [Call; CLIENTS],
    faults: Faults,
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[doc(hidden)]
pub enum Action {
    Start(u8),
    AcquireAll(u8),
    Acquire(u8),
    AcceptGrant(u8),
    StartBody(u8),
    EndBody(u8),
    Cancel(u8),
    Lose(u8, u8),
}

impl Config {
    /// Returns the locks of a client's calls, in the order in which it takes them.
    fn order(&self, client: u8) -> Vec<u8> {
        let mut keys = self.setup.0[usize::from(client)].to_vec();
        if self.rules.one_order {
            keys.sort_unstable();
        }
        if self.rules.locks_once {
            keys.dedup();
        }
        keys
    }

    fn can_step(&self, state: &State, client: u8) -> Option<Action> {
        let (call, order) = (state.calls[usize::from(client)], self.order(client));
        let taken = usize::from(call.taken);
        let lock = |key: u8| &state.locks[usize::from(key)];
        match call.phase {
            Phase::Idle => (call.more > 0).then_some(Action::Start(client)),
            Phase::Body => Some(Action::EndBody(client)),
            Phase::Queued => {
                let key = order[taken];
                // Without `locks_once`, the hold of the same lock is one of another owner id.
                let is_granted = lock(key).holder == Some(client) && !order[..taken].contains(&key);
                is_granted.then_some(Action::AcceptGrant(client))
            }
            Phase::Acquiring if taken == order.len() => Some(Action::StartBody(client)),
            Phase::Acquiring => {
                let free = order.iter().filter(|key| lock(**key).is_free()).count();
                let applies = free == order.len() || !self.rules.all_or_nothing && free > 0;
                Some(if taken == 0 && applies {
                    Action::AcquireAll(client)
                } else {
                    Action::Acquire(client)
                })
            }
        }
    }

    fn acquire(&self, state: &mut State, client: u8) {
        let (order, call) = (self.order(client), &mut state.calls[usize::from(client)]);
        let key = order[usize::from(call.taken)];
        let lock = &mut state.locks[usize::from(key)];
        let is_own =
            lock.holder == Some(client) && !order[..usize::from(call.taken)].contains(&key);
        if lock.is_free() || is_own {
            lock.holder = Some(client);
            call.taken += 1;
        } else {
            lock.queue.push(client);
            call.phase = Phase::Queued;
        }
    }

    fn lose(&self, state: &mut State, client: u8, key: u8) {
        let call = &mut state.calls[usize::from(client)];
        state.locks[usize::from(key)].release(client);
        if call.phase == Phase::Body {
            end(state, client);
        } else if self.rules.start_over {
            state.locks.iter_mut().for_each(|lock| lock.release(client));
            (call.phase, call.taken) = (Phase::Acquiring, 0);
        } else {
            // It keeps the locks that follow, and requests the lost one again.
            let order = self.order(client);
            let waited_for = order.get(usize::from(call.taken));
            if let (Phase::Queued, Some(waited_for)) = (call.phase, waited_for) {
                state.locks[usize::from(*waited_for)].release(client);
            }
            let place = order.iter().position(|other| *other == key);
            (call.phase, call.taken) = (Phase::Acquiring, place.unwrap_or(0) as u8);
        }
    }
}

/// Ends a call, and releases all its locks.
fn end(state: &mut State, client: u8) {
    state.locks.iter_mut().for_each(|lock| lock.release(client));
    let call = &mut state.calls[usize::from(client)];
    (call.phase, call.taken) = (Phase::Idle, 0);
}

impl Protocol for Config {
    type State = State;
    type Action = Action;
    type Trace = ();

    fn initial(&self) -> State {
        let mut calls = [Call::default(); CLIENTS];
        for (call, more) in calls.iter_mut().zip(self.calls) {
            call.more = *more;
        }
        State {
            locks: [Lock::default(); KEYS],
            calls,
            faults: self.faults,
        }
    }

    fn steps(&self, state: &State, steps: &mut Vec<Action>) {
        for client in 0..CLIENTS as u8 {
            steps.extend(self.can_step(state, client));
            let phase = state.calls[usize::from(client)].phase;
            if phase != Phase::Idle && state.faults.cancels > 0 {
                steps.push(Action::Cancel(client));
            }
            if state.faults.losses > 0 {
                let keys = (0..KEYS as u8)
                    .filter(|key| state.locks[usize::from(*key)].holder == Some(client));
                steps.extend(keys.map(|key| Action::Lose(client, key)));
            }
        }
    }

    fn after(&self, state: &State, action: Action) -> State {
        let mut next = *state;
        match action {
            Action::Start(client) => {
                let call = &mut next.calls[usize::from(client)];
                (call.phase, call.more) = (Phase::Acquiring, call.more - 1);
            }
            Action::AcquireAll(client) => {
                let order = self.order(client);
                let locks = &mut next.locks;
                for key in &order {
                    let lock = &mut locks[usize::from(*key)];
                    if lock.is_free() {
                        lock.holder = Some(client);
                    }
                }
                let has_all =
                    (order.iter()).all(|key| locks[usize::from(*key)].holder == Some(client));
                if has_all && self.rules.locks_once {
                    next.calls[usize::from(client)].taken = order.len() as u8;
                } else {
                    self.acquire(&mut next, client);
                }
            }
            Action::Acquire(client) => self.acquire(&mut next, client),
            Action::AcceptGrant(client) => {
                let call = &mut next.calls[usize::from(client)];
                (call.phase, call.taken) = (Phase::Acquiring, call.taken + 1);
            }
            Action::StartBody(client) => next.calls[usize::from(client)].phase = Phase::Body,
            Action::EndBody(client) => end(&mut next, client),
            Action::Cancel(client) => {
                next.faults.cancels -= 1;
                let call = &mut next.calls[usize::from(client)];
                if self.rules.release_all || call.phase != Phase::Queued {
                    end(&mut next, client);
                } else {
                    let key = self.order(client)[usize::from(call.taken)];
                    (call.phase, call.taken) = (Phase::Idle, 0);
                    next.locks[usize::from(key)].release(client);
                }
            }
            Action::Lose(client, key) => {
                next.faults.losses -= 1;
                self.lose(&mut next, client, key);
            }
        }
        next
    }

    fn holds(&self, claim: Claim, state: &State) -> bool {
        let is_idle = |client: u8| state.calls[usize::from(client)].phase == Phase::Idle;
        match claim {
            // A body runs only while its call holds all locks.
            Claim::Proven => (0..CLIENTS as u8).all(|client| {
                let mut order = self.order(client).into_iter();
                state.calls[usize::from(client)].phase != Phase::Body
                    || order.all(|key| state.locks[usize::from(key)].holder == Some(client))
            }),
            Claim::NothingLeft => state.locks.iter().all(|lock| {
                let mut clients = lock.queue.iter().copied().chain(lock.holder);
                clients.all(|client| !is_idle(client))
            }),
            _ => unreachable!("this model has no such claim"),
        }
    }

    fn calm(&self, state: &mut State) {
        state.faults = Faults::NONE;
        for call in &mut state.calls {
            call.more = 0;
        }
    }

    fn is_served(&self, state: &State) -> bool {
        (state.calls.iter()).all(|call| call.phase == Phase::Idle)
    }

    fn trace(&self) {}

    fn describe(&self, (): &mut (), state: &State, action: Action) -> String {
        let next = self.after(state, action);
        format!("{action:?}\n    {:?}\n    {:?}", next.locks, next.calls)
    }
}

fn scenario(calls: &'static [u8], wants: [&'static [u8]; CLIENTS]) -> Config {
    let claims = [Claim::Proven, Claim::NothingLeft, Claim::Served];
    Scenario::new(calls, Rules::ALL, Wants(wants), Faults::NONE, &claims)
}

/// Three clients with two locks each, in a circle.
fn circle() -> Config {
    scenario(&[2, 2, 2], [&[0, 1], &[1, 2], &[2, 0]])
}

/// Explorations with all rules.
#[must_use]
pub fn clean() -> Vec<Config> {
    let faults = Faults::NONE.cancels(1).losses(2);
    vec![
        circle().faults(faults),
        scenario(&[2, 2, 2], [&[0, 1, 2], &[2, 1, 0], &[2, 1]]).faults(faults),
        scenario(&[2, 2, 2], [&[0, 0, 1], &[1, 0], &[1]]).faults(faults),
    ]
}

/// Every rule, with an exploration that needs it.
#[must_use]
pub fn removals() -> Vec<Removal<Wants>> {
    use Claim::*;
    let removal = Removal::<Wants>::new;
    let twice = scenario(&[2, 2, 2], [&[0, 0], &[0], &[1]]);
    let losses = scenario(&[2, 2, 2], [&[0, 1, 2], &[0, 1], &[2]]).faults(Faults::NONE.losses(1));
    let cancels = circle().faults(Faults::NONE.cancels(1));
    vec![
        removal(rule!(one_order), circle(), &[Served]),
        removal(rule!(locks_once), twice, &[Served]),
        removal(rule!(all_or_nothing), circle(), &[Served]),
        removal(rule!(start_over), losses, &[Served]),
        removal(rule!(release_all), cancels, &[NothingLeft]),
    ]
}
