//! The work under the lock.

use std::sync::Arc;
use std::time::Duration;

use distlock::HeldLock;

use super::hold::Hold;
use super::observer::micros;
use super::{Context, Order};
use crate::history::{Call, OpId, Step, now};
use crate::resource::{Access, Answer, Request};

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

    /// Accesses the resource.
    fn access(&self, key: &str, token: u64, access: Access) -> Answer {
        let request = Request {
            key: key.to_owned(),
            by: OpId {
                worker: self.context.worker,
                generation: self.context.generation,
                op: self.op,
            },
            token,
            shared: self.order.invocation.call.is_read(),
            access,
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

/// Runs the body of a call for two keys: it moves an amount from the first to the second.
pub(super) async fn transfer(tickets: [&Ticket; 2], held: [HeldLock; 2]) -> Ended {
    let [from, to] = held;
    let mut from = BodyRun::begin(tickets[0], from.into());
    let mut to = BodyRun::begin(tickets[1], to.into());
    let access = |account: &BodyRun<'_>, access| {
        let key = &account.ticket.order.invocation.key;
        tickets[0].access(key, account.held.token(), access)
    };
    let read = Access::Read { fenced: true };
    let balances = access(&from, read.clone()).zip(access(&to, read));
    pass_time(tickets[0]).await;
    let amount = 1 + (tickets[0].op % 9).cast_signed();
    let moved = balances.and_then(|balances| {
        let moved = Access::Move {
            amount,
            values: [balances.0 - amount, balances.1 + amount],
            to: tickets[1].order.invocation.key.clone(),
            to_token: to.held.token(),
        };
        access(&from, moved)
    });
    (from.completed, to.completed) = (true, true);
    moved.map_or(Ended::Stale, |_| Ended::Done)
}

/// Records the end of a body, even if the body is dropped.
pub(super) struct BodyRun<'a> {
    ticket: &'a Ticket,
    held: Hold,
    pub(super) completed: bool,
}

impl<'a> BodyRun<'a> {
    pub(super) fn begin(ticket: &'a Ticket, held: Hold) -> Self {
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
        let counted = matches!(invocation.call, Call::Write | Call::Permits);
        let audited = !counted && !invocation.call.is_read();
        observer.watch(ticket.op, held.clone(), audited);
        if audited
            && invocation.body.micros >= 5_000
            && let Hold::Lock(held) = &held
        {
            observer.audit(ticket.op, held.clone());
        }
        if invocation.call == Call::Permits {
            let weight = invocation.weight;
            ticket.access(&invocation.key, token, Access::Enter { weight });
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
        let invocation = &self.ticket.order.invocation;
        if invocation.call == Call::Permits {
            let token = self.held.token();
            self.ticket.access(&invocation.key, token, Access::Leave);
        }
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
/// no register. Some calls that run at most once fail in between.
async fn work(ticket: &Ticket, held: &Hold) -> Ended {
    let invocation = &ticket.order.invocation;
    let access = |access| ticket.access(&invocation.key, held.token(), access);
    let read = |fenced| access(Access::Read { fenced });
    match invocation.call {
        Call::Permits => pass_time(ticket).await,
        Call::Read | Call::Downgraded => {
            let first = read(true);
            pass_time(ticket).await;
            if first.and(read(true)).is_none() {
                return Ended::Stale;
            }
        }
        call => {
            let (fenced, unfenced) = (read(true), read(false));
            pass_time(ticket).await;
            if call == Call::Once && ticket.op.is_multiple_of(4) {
                return Ended::Failed;
            }
            let increment = |fenced, value| {
                let value = value + 1;
                access(Access::Write { fenced, value })
            };
            let written = fenced.and_then(|value| increment(true, value));
            unfenced.and_then(|value| increment(false, value));
            if written.is_none() {
                return Ended::Stale;
            }
        }
    }
    Ended::Done
}

pub(super) async fn pass_time(ticket: &Ticket) {
    let body = ticket.order.invocation.body;
    let time = Duration::from_micros(body.micros);
    if body.blocking {
        std::thread::sleep(time);
    } else {
        tokio::time::sleep(time).await;
    }
}
