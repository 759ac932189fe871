//! What happens under the lock.

use std::sync::Arc;
use std::time::Duration;

use distlock::Held;

use super::observer::micros;
use super::{Context, Order};
use crate::history::{WorkerEvent, Workload, now};
use crate::resource::{Access, Answer, Request};

/// How a body ended that was not stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    /// The resource refused the token.
    Stale,
}

/// One call on its way.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    pub(super) context: Arc<Context>,
    pub(super) op: u64,
    pub(super) order: Order,
}

impl Ticket {
    pub(super) fn record(&self, event: &WorkerEvent) {
        self.context.recorder.record(event);
    }

    /// Access to the resource with the hold's token.
    fn access(&self, held: &Held, access: Access) -> Answer {
        let request = Request {
            key: self.order.key.clone(),
            worker: self.context.worker,
            generation: self.context.generation,
            op: self.op,
            token: held.fencing_token().get(),
            access,
        };
        match self.context.resource.ask(&request) {
            Ok(answer) => answer,
            // Never faulted: the run is over, and this process with it.
            Err(error) => {
                eprintln!("worker {}: {error:#}", self.context.worker);
                std::process::exit(2);
            }
        }
    }
}

/// Runs the body of a call and records what it sees.
pub(super) async fn body(ticket: &Ticket, held: Held) -> Ended {
    let mut seen = Seen::begin(ticket, held);
    let ended = work(ticket, &seen.held).await;
    seen.completed = true;
    ended
}

/// Records the end of a body, also when it is dropped.
struct Seen<'a> {
    ticket: &'a Ticket,
    held: Held,
    completed: bool,
}

impl<'a> Seen<'a> {
    fn begin(ticket: &'a Ticket, held: Held) -> Self {
        let op = ticket.op;
        ticket.record(&WorkerEvent::Acquired {
            at: now(),
            op,
            token: held.fencing_token().get(),
            remaining_us: micros(held.remaining()),
        });
        ticket.context.observer.watch(op, held.clone());
        if ticket.order.body.micros >= 5_000 {
            ticket.context.observer.audit(op, &held);
        }
        Seen {
            ticket,
            held,
            completed: false,
        }
    }
}

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        let op = self.ticket.op;
        let at = now();
        let remaining = self.held.remaining();
        self.ticket.record(&WorkerEvent::Sampled {
            at,
            op,
            remaining_us: micros(remaining),
        });
        self.ticket.record(&WorkerEvent::BodyEnded {
            at,
            op,
            completed: self.completed,
            believed: self.held.is_held(),
        });
    }
}

async fn work(ticket: &Ticket, held: &Held) -> Ended {
    match ticket.order.workload {
        Workload::LockSet => lock_set(ticket, held).await,
        Workload::Once => once(ticket, held).await,
        Workload::Counter | Workload::LongQueue | Workload::Liveness => counter(ticket, held).await,
    }
}

/// Adds one to a register, twice over: in the copy that checks tokens, and in the one that does not.
async fn counter(ticket: &Ticket, held: &Held) -> Ended {
    let read = |fenced| match ticket.access(held, Access::Read { fenced }) {
        Answer::Value(value) => Some(value),
        _ => None,
    };
    let (fenced, unfenced) = (read(true), read(false));
    busy(ticket).await;
    let mut ended = Ended::Stale;
    for (fenced, value) in [(true, fenced), (false, unfenced)] {
        let Some(value) = value else {
            continue;
        };
        let value = value + 1;
        let answer = ticket.access(held, Access::Write { fenced, value });
        if fenced && answer == Answer::Done {
            ended = Ended::Done;
        }
    }
    ended
}

/// Reads a set and writes it back with one more element.
async fn lock_set(ticket: &Ticket, held: &Held) -> Ended {
    let Answer::Elements(mut elements) = ticket.access(held, Access::ReadSet) else {
        return Ended::Stale;
    };
    busy(ticket).await;
    let context = &ticket.context;
    // Unique among all workers and their generations.
    elements.push(
        (u64::from(context.worker) << 52) | (u64::from(context.generation) << 40) | ticket.op,
    );
    match ticket.access(held, Access::WriteSet { elements }) {
        Answer::Done => Ended::Done,
        _ => Ended::Stale,
    }
}

/// Executes the next job.
async fn once(ticket: &Ticket, held: &Held) -> Ended {
    let Answer::Value(job) = ticket.access(held, Access::NextJob) else {
        return Ended::Stale;
    };
    busy(ticket).await;
    match ticket.access(held, Access::ExecuteJob { job }) {
        Answer::Done => Ended::Done,
        _ => Ended::Stale,
    }
}

async fn busy(ticket: &Ticket) {
    let body = ticket.order.body;
    let time = Duration::from_micros(body.micros);
    if body.blocking {
        std::thread::sleep(time);
    } else {
        tokio::time::sleep(time).await;
    }
}
