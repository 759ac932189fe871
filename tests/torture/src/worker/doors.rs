//! The functions of the public API that acquire a lock.

use std::time::Duration;

use distlock::{
    BodyState, Error, Lock, LockGuard, LockManager, RunOutcome, RwLock, SkipReason,
    distributed_lock,
};

use super::body::{Ended, Ticket, body, transfer};
use crate::history::{Call, OnLost, Outcome, PERIOD, PERMITS, Step};

/// The outcome of a call, and the text of its error.
pub(super) type Returned = (Outcome, Option<String>);

/// Makes a call, for two keys if there is a `second` ticket.
pub(super) async fn enter(ticket: &Ticket, second: Option<&Ticket>) -> Returned {
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
        Call::Write => of_result(
            rw_lock(ticket)
                .run_write(async |held| Ok::<_, Error>(body(ticket, held).await))
                .await,
        ),
        Call::Permits => of_result(permits(ticket).await),
        Call::Once => once(ticket, lock()).await,
        Call::Several => unreachable!("it has a second ticket"),
    }
}

fn rw_lock(ticket: &Ticket) -> RwLock {
    let lock = manager(ticket).rw_lock(ticket.order.invocation.key.clone());
    lock.lease(lease(ticket)).wait(wait(ticket))
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
        Ok(transfer([first, second], held).await)
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
    match ended {
        Ended::Done => (Outcome::Ok, None),
        Ended::Stale => (Outcome::Stale, None),
        Ended::Failed => (Outcome::Failed, None),
    }
}

fn refused(error: &Error) -> Returned {
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

fn lease(ticket: &Ticket) -> Duration {
    Duration::from_millis(ticket.order.invocation.lease_ms)
}

fn wait(ticket: &Ticket) -> Duration {
    Duration::from_millis(ticket.order.invocation.wait_ms)
}

fn manager(ticket: &Ticket) -> &LockManager {
    &ticket.context.manager
}
