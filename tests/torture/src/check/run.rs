//! A run as the invariants see it: calls instead of lines.

use std::collections::{BTreeMap, HashMap};

use crate::check::faults::Faults;
use crate::check::spans::{Span, Spans};
use crate::check::starvation::Starvation;
use crate::history::{
    Body, Call, Nanos, OnLost, Outcome, Phase, SupervisorEvent, When, WorkerEvent, Workload,
};

pub(crate) const MICRO: Nanos = 1_000;
pub(crate) const MILLI: Nanos = 1_000_000;
pub(crate) const SECOND: Nanos = 1_000_000_000;

/// A lock's key, as a number.
pub(crate) type Key = u32;

/// Texts that recur, each as one number.
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

    /// The number of a name that has one.
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

/// Which call: unique within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OpId {
    pub(crate) worker: u32,
    pub(crate) generation: u32,
    pub(crate) op: u64,
}

/// What was said about a hold: at that moment it was believed until then, or not at all.
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
    pub(crate) workload: Workload,
    pub(crate) call: Call,
    pub(crate) key: Key,
    pub(crate) lease: Nanos,
    pub(crate) wait: Nanos,
    pub(crate) on_lost: OnLost,
    pub(crate) body: Body,
    pub(crate) invoked: Nanos,
    /// When, and with which token.
    pub(crate) acquired: Option<(Nanos, u64)>,
    /// What was said of the hold, in order, its acquisition first.
    pub(crate) statements: Vec<Statement>,
    pub(crate) audits: Vec<Audit>,
    pub(crate) loss_seen: Option<Nanos>,
    pub(crate) ended: Option<Ended>,
    pub(crate) releasing: Option<Nanos>,
    pub(crate) returned: Option<(Nanos, Outcome)>,
    pub(crate) detail: Option<String>,
    /// When its process was gone.
    pub(crate) process_ended: Nanos,
}

impl Op {
    pub(crate) fn token(&self) -> Option<u64> {
        self.acquired.map(|(_, token)| token)
    }

    /// Until when the hold was proven, as far as it was said.
    pub(crate) fn safe_until(&self) -> Option<Nanos> {
        self.statements.iter().filter_map(|s| s.until).max()
    }

    /// The time during which the holder believed in its hold.
    pub(crate) fn belief(&self) -> Option<Span> {
        let (from, _) = self.acquired?;
        let mut until = self.safe_until()?.min(self.process_ended);
        // A guard may go with its call, and then nothing says so but the end of the body.
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

    /// The time during which the call waited.
    pub(crate) fn waiting(&self) -> Span {
        let until = match (self.acquired, self.returned) {
            (Some((at, _)), _) | (None, Some((at, _))) => at,
            (None, None) => self.process_ended,
        };
        Span::new(self.invoked, until.max(self.invoked))
    }

    /// The time until its return, or its process's end.
    pub(crate) fn whole(&self) -> Span {
        let until = self.returned.map_or(self.process_ended, |(at, _)| at);
        Span::new(self.invoked, until.max(self.invoked))
    }

    /// For how long a fault before it may still explain what becomes of its lock.
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

/// What a process had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) threads: u32,
    pub(crate) fds: u32,
    pub(crate) tasks: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    pub(crate) started: Nanos,
    pub(crate) ended: Option<Nanos>,
    pub(crate) killed: bool,
    pub(crate) before: Option<Census>,
    pub(crate) after: Option<Census>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Header {
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    pub(crate) profile: String,
    pub(crate) topology: String,
    pub(crate) workers: u32,
    pub(crate) keys: u32,
    pub(crate) sabotage: Option<String>,
    pub(crate) redis_version: String,
    pub(crate) commit: String,
}

/// One key tried after healing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tried {
    pub(crate) at: Nanos,
    pub(crate) key: String,
    pub(crate) acquired: bool,
    pub(crate) waited: Nanos,
}

/// Everything but what the server and the resource saw.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) header: Header,
    pub(crate) span: Option<Span>,
    pub(crate) phases: Vec<(Nanos, Phase)>,
    pub(crate) keys: Names,
    /// In the order of their beginning.
    pub(crate) ops: Vec<Op>,
    pub(crate) processes: BTreeMap<(u32, u32), Process>,
    pub(crate) faults: Faults,
    pub(crate) tried: Vec<Tried>,
    /// Workers whose calls did not all return, and when that was found.
    pub(crate) stuck: Vec<(Nanos, u32, u32)>,
    pub(crate) leftovers: Option<(Nanos, Vec<String>)>,
    pub(crate) connections: Vec<(When, u32)>,
    pub(crate) starvation: Starvation,
}

impl Run {
    /// The beginning and the end of everything.
    pub(crate) fn span(&self) -> Span {
        self.span.unwrap_or(Span::new(0, 0))
    }

    /// Takes what the supervisor recorded; before any worker's events.
    pub(crate) fn supervise(&mut self, events: &[SupervisorEvent]) {
        self.faults = Faults::of(events, &mut self.keys);
        self.starvation = Starvation::of(events);
        for event in events {
            match event {
                SupervisorEvent::Run {
                    at,
                    seed,
                    seconds,
                    profile,
                    topology,
                    workers,
                    keys,
                    sabotage,
                    redis_version,
                    commit,
                } => {
                    self.span = Some(Span::new(*at, *at));
                    self.header = Header {
                        seed: *seed,
                        seconds: *seconds,
                        profile: profile.clone(),
                        topology: topology.clone(),
                        workers: *workers,
                        keys: *keys,
                        sabotage: sabotage.clone(),
                        redis_version: redis_version.clone(),
                        commit: commit.clone(),
                    };
                }
                SupervisorEvent::Phase { at, phase } => {
                    self.phases.push((*at, *phase));
                    self.lasts_until(*at);
                }
                SupervisorEvent::Fault { at, .. } | SupervisorEvent::Healed { at, .. } => {
                    self.lasts_until(*at);
                }
                SupervisorEvent::WorkerStarted {
                    at,
                    worker,
                    generation,
                    ..
                } => {
                    let process = self.processes.entry((*worker, *generation)).or_default();
                    process.started = *at;
                }
                SupervisorEvent::WorkerEnded {
                    at,
                    worker,
                    generation,
                    killed,
                } => {
                    let process = self.processes.entry((*worker, *generation)).or_default();
                    process.ended = Some(*at);
                    process.killed = *killed;
                    self.lasts_until(*at);
                }
                SupervisorEvent::WorkerStuck {
                    at,
                    worker,
                    generation,
                } => {
                    self.stuck.push((*at, *worker, *generation));
                    self.lasts_until(*at);
                }
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
                    self.lasts_until(*at);
                }
                SupervisorEvent::Connections { when, count, .. } => {
                    self.connections.push((*when, *count));
                }
                SupervisorEvent::Starved { .. } => {}
            }
        }
    }

    fn lasts_until(&mut self, at: Nanos) {
        if let Some(span) = &mut self.span {
            span.until = span.until.max(at);
        }
    }

    /// Takes what one worker process recorded.
    pub(crate) fn work(
        &mut self,
        worker: u32,
        generation: u32,
        events: impl IntoIterator<Item = WorkerEvent>,
    ) {
        let process = self.processes.entry((worker, generation)).or_default();
        let process_ended = process.ended.unwrap_or(Nanos::MAX);
        let mut indices: HashMap<u64, usize> = HashMap::new();
        for event in events {
            match event {
                WorkerEvent::Invoked {
                    at,
                    op,
                    workload,
                    call,
                    key,
                    lease_ms,
                    wait_ms,
                    on_lost,
                    body,
                } => {
                    indices.insert(op, self.ops.len());
                    self.ops.push(Op {
                        id: OpId {
                            worker,
                            generation,
                            op,
                        },
                        workload,
                        call,
                        key: self.keys.number(&key),
                        lease: lease_ms * MILLI,
                        wait: wait_ms * MILLI,
                        on_lost,
                        body,
                        invoked: at,
                        acquired: None,
                        statements: Vec::new(),
                        audits: Vec::new(),
                        loss_seen: None,
                        ended: None,
                        releasing: None,
                        returned: None,
                        detail: None,
                        process_ended,
                    });
                }
                WorkerEvent::Acquired {
                    at,
                    op,
                    token,
                    remaining_us,
                } => {
                    if let Some(op) = find(&mut self.ops, &indices, op) {
                        op.acquired = Some((at, token));
                        op.statements.push(statement(at, remaining_us));
                    }
                }
                WorkerEvent::Sampled {
                    at,
                    op,
                    remaining_us,
                } => {
                    if let Some(op) = find(&mut self.ops, &indices, op) {
                        op.statements.push(statement(at, remaining_us));
                    }
                }
                WorkerEvent::Audited {
                    at,
                    believed_after,
                    op,
                    token,
                    found,
                } => {
                    if let Some(op) = find(&mut self.ops, &indices, op) {
                        op.statements.push(Statement {
                            at: believed_after,
                            until: Some(believed_after),
                        });
                        op.audits.push(Audit {
                            span: Span::new(at, believed_after),
                            token,
                            found,
                        });
                    }
                }
                WorkerEvent::LossSeen { at, op } => {
                    if let Some(op) = find(&mut self.ops, &indices, op) {
                        op.loss_seen.get_or_insert(at);
                    }
                }
                WorkerEvent::BodyEnded {
                    at,
                    op,
                    completed,
                    believed,
                } => {
                    if let Some(op) = find(&mut self.ops, &indices, op) {
                        op.ended = Some(Ended {
                            at,
                            completed,
                            believed,
                        });
                        op.statements.push(Statement {
                            at,
                            until: believed.then_some(at),
                        });
                    }
                }
                WorkerEvent::Releasing { at, op } => {
                    if let Some(op) = find(&mut self.ops, &indices, op) {
                        op.releasing = Some(at);
                    }
                }
                WorkerEvent::Returned {
                    at,
                    op,
                    outcome,
                    detail,
                } => {
                    if let Some(op) = find(&mut self.ops, &indices, op) {
                        op.returned = Some((at, outcome));
                        op.detail = detail;
                    }
                }
                WorkerEvent::Census {
                    when,
                    threads,
                    fds,
                    tasks,
                    ..
                } => {
                    let census = Some(Census {
                        threads,
                        fds,
                        tasks,
                    });
                    let process = self.processes.entry((worker, generation)).or_default();
                    match when {
                        When::Before => process.before = census,
                        When::After => process.after = census,
                    }
                }
                WorkerEvent::Started { at, .. } => {
                    let process = self.processes.entry((worker, generation)).or_default();
                    process.started = at;
                }
                WorkerEvent::Stopped { .. } => {}
            }
        }
    }

    /// After the last worker's events.
    pub(crate) fn complete(&mut self) {
        let end = self.span().until;
        for op in &mut self.ops {
            // Its process ran on to the end, or nobody saw when it ended.
            if op.process_ended == Nanos::MAX {
                let last = op.statements.last().map_or(0, |s| s.at);
                op.process_ended = end.max(last).max(op.invoked);
            }
        }
        self.ops.sort_by_key(|op| op.invoked);
    }

    /// When each worker process did not run, or a body blocked a thread of its runtime: its calls could not
    /// return, nor could it be told anything.
    pub(crate) fn hindered(&self) -> BTreeMap<(u32, u32), Spans> {
        let mut spans: BTreeMap<(u32, u32), Vec<Span>> = BTreeMap::new();
        for &(worker, generation) in self.processes.keys() {
            let stops = self.faults.stops_of(worker).iter().collect();
            spans.insert((worker, generation), stops);
        }
        for op in self.ops.iter().filter(|op| op.body.blocking) {
            let Some((at, _)) = op.acquired else { continue };
            let until = op.ended.map_or(op.whole().until, |ended| ended.at);
            spans
                .entry(op.process())
                .or_default()
                .push(Span::new(at, until));
        }
        spans
            .into_iter()
            .map(|(of, spans)| (of, Spans::of(spans)))
            .collect()
    }

    /// Calls of each key, in the order of their beginning.
    pub(crate) fn by_key(&self) -> Vec<Vec<&Op>> {
        let mut keys = vec![Vec::new(); self.keys.len()];
        for op in &self.ops {
            keys[op.key as usize].push(op);
        }
        keys
    }

    /// How long a call may take beyond its wait: one command, or where several servers vote an ask, a confirmation, and
    /// to take back what was not enough.
    pub(crate) fn patience(&self, lease: Nanos) -> Nanos {
        let commands = if self.header.topology.starts_with("quorum") {
            3
        } else {
            1
        };
        command_deadline(lease) * commands
    }

    pub(crate) fn longest_lease(&self) -> Nanos {
        self.ops.iter().map(|op| op.lease).max().unwrap_or(0)
    }

    /// For how long a fault of the past may still explain what becomes of a lock.
    pub(crate) fn memory(&self) -> Nanos {
        let lease = self.longest_lease();
        lease + grace(lease)
    }
}

fn find<'a>(ops: &'a mut [Op], indices: &HashMap<u64, usize>, op: u64) -> Option<&'a mut Op> {
    indices.get(&op).map(|&index| &mut ops[index])
}

fn statement(at: Nanos, remaining_us: u64) -> Statement {
    Statement {
        at,
        until: (remaining_us > 0).then(|| at + remaining_us * MICRO),
    }
}

/// How much longer the server keeps a lock than its holder believes in it.
pub(crate) fn grace(lease: Nanos) -> Nanos {
    (lease / 10).clamp(250 * MILLI, 10 * SECOND)
}

/// How long one command may take.
pub(crate) fn command_deadline(lease: Nanos) -> Nanos {
    (lease / 10).clamp(50 * MILLI, SECOND).min(lease / 5)
}

/// The lease of a grant that was not confirmed yet.
pub(crate) fn grant_lease(lease: Nanos) -> Nanos {
    lease.min(SECOND)
}
