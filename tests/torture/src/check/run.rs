//! A run as the invariants see it: calls instead of lines.

use std::collections::{BTreeMap, HashMap};

use crate::check::faults::Faults;
use crate::check::quorum;
use crate::check::spans::{Span, Spans};
use crate::check::starvation::Starvation;
use crate::history::{
    Accounts, Body, Call, Census, Header, Nanos, OnLost, OpId, Outcome, Step, SupervisorEvent,
    When, WorkerEvent,
};

pub(crate) const MICRO: Nanos = 1_000;
pub(crate) const MILLI: Nanos = 1_000_000;
pub(crate) const SECOND: Nanos = 1_000_000_000;

/// The key of a lock, as a number.
pub(crate) type Key = u32;

/// Recurring texts, each represented by one number.
#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = u32::try_from(self.names.len()).expect("fewer than 2^32 names");
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        number
    }

    /// Returns the number of a name that already has one.
    pub(crate) fn known(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub(crate) fn name(&self, number: u32) -> &str {
        &self.names[number as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}

/// A reading of a hold: at `at` it was valid until `until`, or had ended (`None`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) at: Nanos,
    pub(crate) until: Option<Nanos>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) at: Nanos,
    pub(crate) completed: bool,
    pub(crate) believed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Audit {
    pub(crate) span: Span,
    pub(crate) token: u64,
    pub(crate) found: Option<u64>,
}

/// One call, from its beginning to its return.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) id: OpId,
    pub(crate) call: Call,
    pub(crate) key: Key,
    /// The other key of a call for two keys.
    pub(crate) other: Option<Key>,
    pub(crate) lease: Nanos,
    pub(crate) wait: Nanos,
    pub(crate) on_lost: OnLost,
    pub(crate) body: Body,
    pub(crate) weight: u32,
    pub(crate) invoked: Nanos,
    /// The time of the acquisition, and the token.
    pub(crate) acquired: Option<(Nanos, u64)>,
    /// The readings of the hold in order, the acquisition first.
    pub(crate) statements: Vec<Statement>,
    pub(crate) audits: Vec<Audit>,
    pub(crate) loss_seen: Option<Nanos>,
    pub(crate) ended: Option<Ended>,
    pub(crate) releasing: Option<Nanos>,
    pub(crate) returned: Option<(Nanos, Outcome)>,
    pub(crate) detail: Option<String>,
    /// The time at which the process had exited.
    pub(crate) process_ended: Nanos,
}

impl Op {
    fn take(&mut self, at: Nanos, step: Step) {
        match step {
            Step::Invoked(_) => {}
            Step::Acquired {
                token,
                remaining_us,
            } => {
                self.acquired = Some((at, token));
                self.state(at, remaining_us);
            }
            Step::Sampled { remaining_us } => self.state(at, remaining_us),
            Step::Audited {
                believed_after,
                token,
                found,
            } => {
                self.statements.push(Statement {
                    at: believed_after,
                    until: Some(believed_after),
                });
                self.audits.push(Audit {
                    span: Span::new(at, believed_after),
                    token,
                    found,
                });
            }
            Step::LossSeen => drop(self.loss_seen.get_or_insert(at)),
            Step::BodyEnded {
                completed,
                believed,
            } => {
                self.ended = Some(Ended {
                    at,
                    completed,
                    believed,
                });
                let until = believed.then_some(at);
                self.statements.push(Statement { at, until });
            }
            Step::Releasing => self.releasing = Some(at),
            Step::Returned { outcome, detail } => {
                self.returned = Some((at, outcome));
                self.detail = detail;
            }
        }
    }

    fn state(&mut self, at: Nanos, remaining_us: u64) {
        let until = (remaining_us > 0).then(|| at + remaining_us * MICRO);
        self.statements.push(Statement { at, until });
    }

    pub(crate) fn token(&self) -> Option<u64> {
        self.acquired.map(|(_, token)| token)
    }

    /// Returns the latest time until which any reading proved the hold valid.
    pub(crate) fn safe_until(&self) -> Option<Nanos> {
        self.statements.iter().filter_map(|s| s.until).max()
    }

    /// Returns the time during which the holder considered its hold valid.
    pub(crate) fn belief(&self) -> Option<Span> {
        let (from, _) = self.acquired?;
        let mut until = self.safe_until()?.min(self.process_ended);
        // A guard may be dropped with its call; then only the end of the body shows the release.
        let released = self.releasing.or(self.ended.map(|ended| ended.at));
        let returned = self.returned.map(|(at, _)| at);
        let denied = self.statements.iter().find(|s| s.until.is_none());
        for cut in [released, returned, self.loss_seen, denied.map(|s| s.at)]
            .into_iter()
            .flatten()
        {
            until = until.min(cut);
        }
        (from < until).then(|| Span::new(from, until))
    }

    /// Returns the time during which the call waited.
    pub(crate) fn waiting(&self) -> Span {
        let until = match (self.acquired, self.returned) {
            (Some((at, _)), _) | (None, Some((at, _))) => at,
            (None, None) => self.process_ended,
        };
        Span::new(self.invoked, until.max(self.invoked))
    }

    /// Returns the time until the call's return, or until the end of its process.
    pub(crate) fn whole(&self) -> Span {
        let until = self.returned.map_or(self.process_ended, |(at, _)| at);
        Span::new(self.invoked, until.max(self.invoked))
    }

    /// Returns how long after its end a fault may still explain the fate of this lock.
    pub(crate) fn memory(&self) -> Nanos {
        self.lease + grace(self.lease)
    }

    pub(crate) fn process(&self) -> (u32, u32) {
        (self.id.worker, self.id.generation)
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.returned.map(|(_, outcome)| outcome)
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        self.id == other.id
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    pub(crate) ended: Option<Nanos>,
    pub(crate) before: Option<Census>,
    pub(crate) after: Option<Census>,
    /// The indexes of its calls.
    ops: HashMap<u64, usize>,
}

/// The attempt to acquire one key after healing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tried {
    pub(crate) at: Nanos,
    pub(crate) key: String,
    pub(crate) acquired: bool,
    pub(crate) waited: Nanos,
}

/// Everything except the accesses of the resource.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) header: Header,
    pub(crate) span: Span,
    pub(crate) keys: Names,
    /// Sorted by their beginning.
    pub(crate) ops: Vec<Op>,
    pub(crate) processes: BTreeMap<(u32, u32), Process>,
    pub(crate) faults: Faults,
    pub(crate) tried: Vec<Tried>,
    /// Workers with calls that did not return, and when the supervisor noticed.
    pub(crate) stuck: Vec<(Nanos, u32, u32)>,
    pub(crate) leftovers: Option<(Nanos, Vec<String>)>,
    pub(crate) connections: Vec<(When, u32)>,
    /// The table that the locks protect, if there is one.
    pub(crate) accounts: Option<Accounts>,
    pub(crate) starvation: Starvation,
}

impl Run {
    /// Takes the supervisor's events. Must be called before the workers' events are taken.
    pub(crate) fn supervise(&mut self, events: &[SupervisorEvent]) {
        self.starvation = Starvation::of(events);
        for event in events {
            match event {
                SupervisorEvent::Run { at, header } => {
                    self.span = Span::new(*at, *at);
                    self.header = header.clone();
                }
                SupervisorEvent::WorkerStarted {
                    worker, generation, ..
                } => {
                    self.processes.entry((*worker, *generation)).or_default();
                }
                SupervisorEvent::WorkerEnded {
                    at,
                    worker,
                    generation,
                } => {
                    let process = self.processes.entry((*worker, *generation)).or_default();
                    process.ended = Some(*at);
                }
                SupervisorEvent::WorkerStuck {
                    at,
                    worker,
                    generation,
                } => self.stuck.push((*at, *worker, *generation)),
                SupervisorEvent::KeyTried {
                    at,
                    key,
                    acquired,
                    waited_ms,
                } => self.tried.push(Tried {
                    at: *at,
                    key: key.clone(),
                    acquired: *acquired,
                    waited: waited_ms * MILLI,
                }),
                SupervisorEvent::Leftovers { at, keys } => {
                    self.leftovers = Some((*at, keys.clone()));
                }
                SupervisorEvent::Connections { when, count } => {
                    self.connections.push((*when, *count));
                }
                SupervisorEvent::Accounts(accounts) => self.accounts = Some(accounts.clone()),
                SupervisorEvent::Done { at } => self.span.until = *at,
                SupervisorEvent::Fault(_)
                | SupervisorEvent::Healed { .. }
                | SupervisorEvent::Starved { .. } => {}
            }
        }
        self.faults = Faults::of(events, &mut self.keys);
    }

    /// Takes an event of one worker process.
    pub(crate) fn work(&mut self, worker: u32, generation: u32, event: WorkerEvent) {
        let process = self.processes.entry((worker, generation)).or_default();
        match event {
            WorkerEvent::Call {
                at,
                op,
                step: Step::Invoked(invocation),
            } => {
                process.ops.insert(op, self.ops.len());
                self.ops.push(Op {
                    id: OpId {
                        worker,
                        generation,
                        op,
                    },
                    call: invocation.call,
                    key: self.keys.number(&invocation.key),
                    other: (invocation.other_key.as_ref()).map(|key| self.keys.number(key)),
                    lease: invocation.lease_ms * MILLI,
                    wait: invocation.wait_ms * MILLI,
                    on_lost: invocation.on_lost,
                    body: invocation.body,
                    weight: invocation.weight,
                    invoked: at,
                    acquired: None,
                    statements: Vec::new(),
                    audits: Vec::new(),
                    loss_seen: None,
                    ended: None,
                    releasing: None,
                    returned: None,
                    detail: None,
                    process_ended: process.ended.unwrap_or(Nanos::MAX),
                });
            }
            WorkerEvent::Call { at, op, step } => {
                if let Some(place) = process.ops.get(&op) {
                    self.ops[*place].take(at, step);
                }
            }
            WorkerEvent::Census { when, census } => match when {
                When::Before => process.before = Some(census),
                When::After => process.after = Some(census),
            },
        }
    }

    /// Completes the run after the last worker's events.
    pub(crate) fn complete(&mut self) {
        let end = self.span.until;
        for op in &mut self.ops {
            // The process ran to the end of the run, or its end was not recorded.
            if op.process_ended == Nanos::MAX {
                let last = op.statements.last().map_or(0, |s| s.at);
                op.process_ended = end.max(last).max(op.invoked);
            }
        }
        self.ops.sort_by_key(|op| op.invoked);
        if let Some(count) = self.quorum_servers() {
            // Corresponds to the `max_lease` on which all clients agree.
            let lease = self.longest_lease().max(SECOND);
            self.faults = quorum::effects(&self.faults, count, lease + grace(lease));
        }
    }

    /// Returns the number of servers of a quorum, or `None` without one.
    pub(crate) fn quorum_servers(&self) -> Option<u32> {
        self.header.topology.strip_prefix("quorum")?.parse().ok()
    }

    /// Returns when each worker process was stopped, or a body blocked a thread of its runtime.
    /// Meanwhile its calls could neither return nor be notified.
    pub(crate) fn hindered(&self) -> BTreeMap<(u32, u32), Spans> {
        let mut spans: BTreeMap<(u32, u32), Vec<Span>> = BTreeMap::new();
        for &(worker, generation) in self.processes.keys() {
            let stops = self.faults.stops_of(worker).iter().collect();
            spans.insert((worker, generation), stops);
        }
        for op in self.ops.iter().filter(|op| op.body.blocking) {
            let Some((at, _)) = op.acquired else { continue };
            let until = op.ended.map_or(op.whole().until, |ended| ended.at);
            let of_process = spans.entry(op.process()).or_default();
            of_process.push(Span::new(at, until));
        }
        let spans = spans.into_iter();
        spans.map(|(of, spans)| (of, Spans::of(spans))).collect()
    }

    /// Returns true if the server's clock stepped since the call's worker was stopped, during `span`
    /// or shortly before. The worker's knowledge of that clock is then outdated, so it takes a grant
    /// for younger than it is.
    pub(crate) fn stepped_since_stop(&self, op: &Op, span: Span) -> bool {
        let before = span.widened(op.memory(), 0);
        let mut stops = self.faults.stops_of(op.id.worker).iter();
        let stop = stops.find(|stop| before.from <= stop.until && stop.from <= span.until);
        stop.is_some_and(|stop| {
            let since = span.since(stop.from).widened(op.memory(), 0);
            self.faults.at(op.key).steps.touches(since)
        })
    }

    /// Returns the calls of each key, sorted by their beginning.
    pub(crate) fn by_key(&self) -> Vec<Vec<&Op>> {
        let mut keys = vec![Vec::new(); self.keys.len()];
        for op in &self.ops {
            keys[op.key as usize].push(op);
        }
        keys
    }

    /// Returns how long a call may exceed its wait: one command, or three with a quorum. The three
    /// are the acquire, its confirmation, and the release of an attempt that failed.
    pub(crate) fn patience(&self, lease: Nanos) -> Nanos {
        let commands = if self.quorum_servers().is_some() {
            3
        } else {
            1
        };
        command_deadline(lease) * commands
    }

    fn longest_lease(&self) -> Nanos {
        self.ops.iter().map(|op| op.lease).max().unwrap_or(0)
    }

    /// Returns how long after its end a fault may still explain the fate of any lock.
    pub(crate) fn memory(&self) -> Nanos {
        let lease = self.longest_lease();
        lease + grace(lease)
    }
}

/// Returns the grace period: how much longer than the holder the server keeps a lock.
pub(crate) fn grace(lease: Nanos) -> Nanos {
    (lease / 10).clamp(250 * MILLI, 10 * SECOND)
}

/// Returns the timeout of one command.
fn command_deadline(lease: Nanos) -> Nanos {
    (lease / 10).clamp(50 * MILLI, SECOND).min(lease / 5)
}

/// Returns the lease of a grant that has not been confirmed yet.
pub(crate) fn grant_lease(lease: Nanos) -> Nanos {
    lease.min(SECOND)
}
