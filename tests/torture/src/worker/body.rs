//! The work under the lock.

use std::sync::Arc;
use std::time::Duration;

use distlock::HeldLock;

use super::observer::micros;
use super::{Context, Order};
use crate::history::{OpId, Step, now};
use crate::resource::{Answer, Request};

/// The result of a body that was not stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    /// The resource rejected the token.
    Stale,
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
    fn access(&self, held: &HeldLock, fenced: bool, write: Option<u64>) -> Answer {
        let request = Request {
            key: self.order.invocation.key.clone(),
            by: OpId {
                worker: self.context.worker,
                generation: self.context.generation,
                op: self.op,
            },
            token: held.fencing_token().get(),
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
pub(super) async fn body(ticket: &Ticket, held: HeldLock) -> Ended {
    let mut run = BodyRun::begin(ticket, held);
    let ended = work(ticket, &run.held).await;
    run.completed = true;
    ended
}

/// Records the end of a body, even if the body is dropped.
struct BodyRun<'a> {
    ticket: &'a Ticket,
    held: HeldLock,
    completed: bool,
}

impl<'a> BodyRun<'a> {
    fn begin(ticket: &'a Ticket, held: HeldLock) -> Self {
        let at = now();
        let (token, remaining_us) = (held.fencing_token().get(), micros(held.remaining()));
        let acquired = Step::Acquired {
            token,
            remaining_us,
        };
        ticket.context.recorder.step(ticket.op, at, acquired);
        ticket.context.observer.watch(ticket.op, held.clone());
        if ticket.order.invocation.body.micros >= 5_000 {
            ticket.context.observer.audit(ticket.op, &held);
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

/// Increments both registers of the key.
async fn work(ticket: &Ticket, held: &HeldLock) -> Ended {
    let fenced = ticket.access(held, true, None);
    let unfenced = ticket.access(held, false, None);
    let body = ticket.order.invocation.body;
    let time = Duration::from_micros(body.micros);
    if body.blocking {
        std::thread::sleep(time);
    } else {
        tokio::time::sleep(time).await;
    }
    let write = |fenced, value: u64| ticket.access(held, fenced, Some(value + 1));
    let ended = match fenced.and_then(|value| write(true, value)) {
        Some(_) => Ended::Done,
        None => Ended::Stale,
    };
    unfenced.and_then(|value| write(false, value));
    ended
}
