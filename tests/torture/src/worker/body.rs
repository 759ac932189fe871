//! The work under the lock.

use std::sync::Arc;
use std::time::Duration;

use super::hold::Hold;
use super::observer::micros;
use super::{Context, Order};
use crate::history::{Call, OpId, Step, now};
use crate::resource::{Answer, Request};

/// The result of a body that was not stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    /// The resource rejected the token.
    Stale,
    /// On purpose. The body counts as not completed.
    Failed,
}

/// A call in flight.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    pub(super) context: Arc<Context>,
    pub(super) op: u64,
    pub(super) order: Order,
}

impl Ticket {
    pub(super) fn record(&self, step: Step) {
        self.context.recorder.step(self.op, now(), step);
    }

    /// Accesses the resource with the token of the hold.
    fn access(&self, held: &Hold, fenced: bool, write: Option<u64>) -> Answer {
        let request = Request {
            key: self.order.invocation.key.clone(),
            by: OpId {
                worker: self.context.worker,
                generation: self.context.generation,
                op: self.op,
            },
            token: held.token(),
            shared: self.order.invocation.call == Call::Read,
            fenced,
            write,
        };
        match self.context.resource.send(&request) {
            Ok(answer) => answer,
            // The resource has no faults, so an error ends the run and this process.
            Err(error) => {
                eprintln!("worker {}: {error:#}", self.context.worker);
                std::process::exit(2);
            }
        }
    }
}

/// Runs the body of a call and records its steps.
pub(super) async fn body(ticket: &Ticket, held: impl Into<Hold>) -> Ended {
    let mut run = BodyRun::begin(ticket, held.into());
    let ended = work(ticket, &run.held).await;
    run.completed = ended != Ended::Failed;
    ended
}

/// Records the end of a body, even if the body is dropped.
struct BodyRun<'a> {
    ticket: &'a Ticket,
    held: Hold,
    completed: bool,
}

impl<'a> BodyRun<'a> {
    fn begin(ticket: &'a Ticket, held: Hold) -> Self {
        let at = now();
        let (token, remaining_us) = (held.token(), micros(held.remaining()));
        let acquired = Step::Acquired {
            token,
            remaining_us,
        };
        ticket.context.recorder.step(ticket.op, at, acquired);
        let observer = &ticket.context.observer;
        let invocation = &ticket.order.invocation;
        // Audits read the value of a mutex.
        let audited = !matches!(invocation.call, Call::Read | Call::Write | Call::Permits);
        observer.watch(ticket.op, held.clone(), audited);
        if audited
            && invocation.body.micros >= 5_000
            && let Hold::Lock(held) = &held
        {
            observer.audit(ticket.op, held.clone());
        }
        BodyRun {
            ticket,
            held,
            completed: false,
        }
    }
}

impl Drop for BodyRun<'_> {
    fn drop(&mut self) {
        let at = now();
        let remaining_us = micros(self.held.remaining());
        let ended = Step::BodyEnded {
            completed: self.completed,
            believed: self.held.is_held(),
        };
        for step in [Step::Sampled { remaining_us }, ended] {
            self.ticket.context.recorder.step(self.ticket.op, at, step);
        }
    }
}

/// Increments both registers of the key. A reader reads the fenced one twice, and a permit protects
/// no register.
async fn work(ticket: &Ticket, held: &Hold) -> Ended {
    let access = |fenced, write| ticket.access(held, fenced, write);
    match ticket.order.invocation.call {
        Call::Permits => pass_time(ticket).await,
        Call::Once if ticket.op.is_multiple_of(4) => {
            pass_time(ticket).await;
            return Ended::Failed;
        }
        Call::Read => {
            let first = access(true, None);
            pass_time(ticket).await;
            if first.and(access(true, None)).is_none() {
                return Ended::Stale;
            }
        }
        _ => {
            let (fenced, unfenced) = (access(true, None), access(false, None));
            pass_time(ticket).await;
            let written = fenced.and_then(|value| access(true, Some(value + 1)));
            unfenced.and_then(|value| access(false, Some(value + 1)));
            if written.is_none() {
                return Ended::Stale;
            }
        }
    }
    Ended::Done
}

async fn pass_time(ticket: &Ticket) {
    let body = ticket.order.invocation.body;
    let time = Duration::from_micros(body.micros);
    if body.blocking {
        std::thread::sleep(time);
    } else {
        tokio::time::sleep(time).await;
    }
}
