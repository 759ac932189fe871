//! The loop of a candidate: wait for the lock, lead, step down or lose the lock, and wait again.

use std::cell::Cell;
use std::time::Duration;

use anyhow::Result;
use distlock::{HeldLock, Lock};
use tokio::sync::watch;

/// The pause after a failure, so that immediate failures do not repeat a thousand times a second.
const RETRY_BACKOFF: Duration = Duration::from_secs(1);

/// Leads whenever it is this candidate's turn, until `stop` becomes true.
///
/// `term` is the leader's work, which a lost lock drops at its next await. Its writes until then,
/// and those in flight, may arrive after its successor's, so they need the token: docs/safety.md
/// says when. When `stop` becomes true, `term` has to return soon. Then the lock is released, and
/// the next candidate in the queue acquires it within milliseconds.
///
/// # Errors
///
/// Those that a retry cannot fix, such as a wrong password.
pub(crate) async fn campaign(
    lock: &Lock,
    stop: watch::Receiver<bool>,
    term: impl AsyncFn(HeldLock, watch::Receiver<bool>) -> Result<()>,
) -> Result<()> {
    while !*stop.borrow() {
        let leads = Cell::new(false);
        let led = lock.run(async |held| {
            // A hand-off grants the lock for at most a second. A term could begin at once, because
            // it can be stopped; it waits so that none begins that cannot be confirmed.
            held.confirmed().await?;
            leads.set(true);
            tracing::info!(token = %held.fencing_token(), "leads");
            term(held, stop.clone()).await
        });
        let stopped = async {
            until_true(stop.clone()).await;
            // A leader finishes its step; a candidate that waits leaves the queue at once.
            if leads.get() {
                std::future::pending().await
            }
        };
        let led = tokio::select! {
            led = led => led,
            () = stopped => return Ok(()),
        };
        match led {
            Ok(()) => tracing::info!("stepped down"),
            Err(error) => match error.downcast_ref::<distlock::Error>() {
                // The error names the leader. Without a pause, because a candidate that is not in
                // the queue misses a hand-off.
                Some(busy @ distlock::Error::Busy { .. }) if !leads.get() => {
                    tracing::info!("still waits: {busy}");
                    continue;
                }
                Some(lock) if lock.is_lost() || lock.is_retryable() => {
                    tracing::warn!("does not lead: {lock}");
                }
                Some(_) if !leads.get() => return Err(error),
                _ => tracing::warn!("stepped down after a failure: {error:#}"),
            },
        }
        let _ = tokio::time::timeout(RETRY_BACKOFF, until_true(stop.clone())).await;
    }
    Ok(())
}

/// Waits until the value is true, or until its sender is dropped.
pub(crate) async fn until_true(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
