//! The functions of the public API that acquire a lock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use distlock::{
    BodyState, Error, Lock, LockGuard, LockManager, RunOutcome, RwLock, SkipReason,
    distributed_lock,
};

use super::accounts::transfer;
use super::body::{self, Ended, Ticket, body};
use crate::history::{Call, OnLost, Outcome, PERIOD, PERMITS, Step};

/// The outcome of a call, and the text of its error.
pub(super) type Returned = (Outcome, Option<String>);

/// Makes a call, for two keys if there is a `second` ticket.
pub(super) async fn enter(ticket: &Ticket, second: Option<&Ticket>) -> Returned {
    if ticket.order.invocation.call == Call::Transfer {
        return transfer(ticket, second).await;
    }
    if let Some(second) = second {
        return of_result(of_two_keys(ticket, second).await);
    }
    let invocation = &ticket.order.invocation;
    let lock = || {
        let lock = manager(ticket).lock(invocation.key.clone());
        lock.lease(lease(ticket)).wait(wait(ticket))
    };
    match invocation.call {
        Call::Attribute => of_result(match invocation.on_lost {
            OnLost::Cancel => cancelled_on_loss(ticket).await,
            OnLost::Finish => finished_on_loss(ticket).await,
        }),
        Call::Run => of_result(
            lock()
                .run(async |held| Ok::<_, Error>(body(ticket, held).await))
                .await,
        ),
        Call::Guard => match lock().acquire().await {
            Ok(guard) => use_guard(ticket, guard).await,
            Err(error) => refused(&error),
        },
        Call::Try => try_guard(ticket, lock()).await,
        Call::Read => of_result(
            rw_lock(ticket)
                .run_read(async |held| Ok::<_, Error>(body(ticket, held).await))
                .await,
        ),
        Call::Write if ticket.op.is_multiple_of(3) => of_result(write_and_read(ticket).await),
        Call::Write => of_result(
            rw_lock(ticket)
                .run_write(async |held| Ok::<_, Error>(body(ticket, held).await))
                .await,
        ),
        Call::Permits => of_result(permits(ticket).await),
        Call::Once => once(ticket, lock()).await,
        Call::Several | Call::Transfer | Call::Downgraded => {
            unreachable!("it has a second ticket, or is a part of another call")
        }
    }
}

fn rw_lock(ticket: &Ticket) -> RwLock {
    let lock = manager(ticket).rw_lock(ticket.order.invocation.key.clone());
    lock.lease(lease(ticket)).wait(wait(ticket))
}

/// Writes, and then reads without letting another writer in between. The read is another call in the
/// history.
async fn write_and_read(ticket: &Ticket) -> Result<Ended, Error> {
    let guard = rw_lock(ticket).write().await?;
    let ended = tokio::select! {
        biased;
        error = guard.lost() => return Err(error),
        ended = body(ticket, guard.held()) => ended,
    };
    ticket.record(Step::Releasing);
    let mut read = Downgraded::begin(ticket);
    let guard = match guard.downgrade().await {
        Ok(guard) => guard,
        Err(error) => {
            read.returned = refused(&error);
            return Err(error);
        }
    };
    tokio::select! {
        biased;
        error = guard.lost() => read.returned = refused(&error),
        ended = body(&read.ticket, guard.held()) => read.returned = of_ended(ended),
    }
    read.ticket.record(Step::Releasing);
    guard.release().await?;
    Ok(ended)
}

/// The read of a call that wrote before. Records its return, even if the call is dropped.
struct Downgraded {
    ticket: Ticket,
    returned: Returned,
}

impl Downgraded {
    fn begin(write: &Ticket) -> Self {
        let mut ticket = write.clone();
        ticket.op = ticket.context.next_op.fetch_add(1, Ordering::Relaxed);
        let invocation = &mut ticket.order.invocation;
        // The call retries while the write is valid.
        (invocation.call, invocation.wait_ms) = (Call::Downgraded, invocation.lease_ms);
        ticket.record(Step::Invoked(ticket.order.invocation.clone()));
        Downgraded {
            ticket,
            returned: (Outcome::Dropped, None),
        }
    }
}

impl Drop for Downgraded {
    fn drop(&mut self) {
        let (outcome, detail) = self.returned.clone();
        self.ticket.record(Step::Returned { outcome, detail });
    }
}

async fn permits(ticket: &Ticket) -> Result<Ended, Error> {
    let invocation = &ticket.order.invocation;
    let semaphore = manager(ticket).semaphore(invocation.key.clone(), PERMITS);
    let semaphore = semaphore.lease(lease(ticket)).wait(wait(ticket));
    let permit = semaphore.acquire_many(invocation.weight).await?;
    let held = permit.held();
    let ended = tokio::select! {
        biased;
        error = permit.lost() => return Err(error),
        ended = body(ticket, held) => ended,
    };
    permit.release().await?;
    Ok(ended)
}

/// The error of a call that runs at most once.
enum OnceError {
    /// The body failed.
    Body(Ended),
    Lock(Error),
}

impl From<Error> for OnceError {
    fn from(error: Error) -> Self {
        OnceError::Lock(error)
    }
}

async fn once(ticket: &Ticket, lock: Lock) -> Returned {
    let lock = lock.once_per(PERIOD);
    let run = lock.try_run(async |held| match body(ticket, held).await {
        Ended::Done => Ok(()),
        ended => Err(OnceError::Body(ended)),
    });
    match run.await {
        Ok(RunOutcome::Completed(())) => (Outcome::Ok, None),
        Ok(RunOutcome::Skipped(SkipReason::AlreadyRan { .. })) => (Outcome::AlreadyRan, None),
        Ok(RunOutcome::Skipped(_)) => (Outcome::Busy, None),
        Err(OnceError::Body(ended)) => of_ended(ended),
        Err(OnceError::Lock(error)) => refused(&error),
    }
}

/// Runs the body of a call for two keys while both are held.
async fn of_two_keys(first: &Ticket, second: &Ticket) -> Result<Ended, Error> {
    let keys = [first, second].map(|ticket| ticket.order.invocation.key.clone());
    let locks = manager(first).lock_all(keys);
    let locks = locks.lease(lease(first)).wait(wait(first));
    let body = locks.run(async |held| {
        let held = held.try_into().expect("one hold for each key");
        Ok(body::transfer([first, second], held).await)
    });
    body.await
}

async fn try_guard(ticket: &Ticket, lock: Lock) -> Returned {
    match lock.try_acquire().await {
        Ok(Some(guard)) => use_guard(ticket, guard).await,
        Ok(None) => (Outcome::Busy, None),
        Err(error) => refused(&error),
    }
}

/// Runs the body under a guard, which does not stop it. Half of these calls stop it themselves.
async fn use_guard(ticket: &Ticket, guard: LockGuard) -> Returned {
    let racing = ticket.op.is_multiple_of(2);
    let ended = guard
        .scope(async {
            let work = body(ticket, distlock::current());
            if racing {
                tokio::select! {
                    biased;
                    _ = guard.lost() => None,
                    ended = work => Some(ended),
                }
            } else {
                Some(work.await)
            }
        })
        .await;
    ticket.record(Step::Releasing);
    if ticket.order.drop_guard {
        drop(guard);
        return (Outcome::Dropped, Some("the guard".into()));
    }
    match (guard.release().await, ended) {
        (Ok(()), Some(ended)) => of_ended(ended),
        // The body was stopped although nothing was lost.
        (Ok(()), None) => (Outcome::Other, Some("lost() resolved".into())),
        (Err(error), _) => refused(&error),
    }
}

fn of_result(result: Result<Ended, Error>) -> Returned {
    match result {
        Ok(ended) => of_ended(ended),
        Err(error) => refused(&error),
    }
}

fn of_ended(ended: Ended) -> Returned {
    (ended.into(), None)
}

impl From<Ended> for Outcome {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Done => Outcome::Ok,
            Ended::Stale => Outcome::Stale,
            Ended::Failed => Outcome::Failed,
        }
    }
}

pub(super) fn refused(error: &Error) -> Returned {
    let outcome = match error {
        Error::Busy { .. } | Error::QueueFull { .. } => Outcome::Busy,
        Error::Unavailable { .. } => Outcome::Unavailable,
        Error::Lost {
            body: BodyState::Completed,
            ..
        } => Outcome::LostCompleted,
        Error::Lost { .. } => Outcome::Lost,
        Error::MaxHoldExceeded { .. } => Outcome::MaxHoldExceeded,
        Error::ShutDown { .. } => Outcome::ShutDown,
        Error::KeyConflict { .. } => Outcome::KeyConflict,
        _ => Outcome::Other,
    };
    (outcome, Some(error.to_string()))
}

#[distributed_lock(
    key = "<ticket.order.invocation.key>",
    lease = lease(ticket),
    wait = wait(ticket),
    manager = manager(ticket)
)]
async fn cancelled_on_loss(ticket: &Ticket) -> Result<Ended, Error> {
    Ok(body(ticket, distlock::current()).await)
}

#[distributed_lock(
    key = "<ticket.order.invocation.key>",
    lease = lease(ticket),
    wait = wait(ticket),
    on_lost = "finish",
    manager = manager(ticket)
)]
async fn finished_on_loss(ticket: &Ticket) -> Result<Ended, Error> {
    Ok(body(ticket, distlock::current()).await)
}

pub(super) fn lease(ticket: &Ticket) -> Duration {
    Duration::from_millis(ticket.order.invocation.lease_ms)
}

pub(super) fn wait(ticket: &Ticket) -> Duration {
    Duration::from_millis(ticket.order.invocation.wait_ms)
}

pub(super) fn manager(ticket: &Ticket) -> &LockManager {
    &ticket.context.manager
}
