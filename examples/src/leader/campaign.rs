//! The loop of a candidate: stand in line, lead, step down or lose, and stand in line again.

use std::cell::Cell;
use std::time::Duration;

use anyhow::Result;
use distlock::{Held, Lock};
use tokio::sync::watch;

/// Before it stands in line again after a trouble, so that what fails at once does not fail a thousand times a second.
const PAUSE: Duration = Duration::from_secs(1);

/// Leads whenever it is this candidate's turn, until it is told to stop.
///
/// `term` is the leader's work. When the lock is lost it is dropped at its next await; until then, and with what it has sent, it may come
/// after its successor, so what it writes needs the token: docs/safety.md says when. When `stop` becomes true it is to return soon:
/// then the lock is released, and who is next in line has it within milliseconds.
///
/// # Errors
///
/// Those that trying again does not mend, such as a wrong password.
pub(crate) async fn campaign(
    lock: &Lock,
    stop: watch::Receiver<bool>,
    term: impl AsyncFn(Held, watch::Receiver<bool>) -> Result<()>,
) -> Result<()> {
    while !*stop.borrow() {
        let leads = Cell::new(false);
        let led = lock.run(async |held| {
            // A term begins once the store has confirmed the full lease: a lock that was handed over is granted for a second.
            held.confirmed().await?;
            leads.set(true);
            tracing::info!(token = %held.fencing_token(), "leads");
            term(held, stop.clone()).await
        });
        let stopped = async {
            until_true(stop.clone()).await;
            // A leader finishes what it has in hand; who waits leaves the line at once.
            if leads.get() {
                std::future::pending().await
            }
        };
        let led = tokio::select! {
            led = led => led,
            () = stopped => return Ok(()),
        };
        match led {
            Ok(Ok(())) => tracing::info!("stepped down"),
            Ok(Err(error)) => tracing::warn!("stepped down, for it cannot work: {error:#}"),
            // Says who leads, and since when. Out of the line it would miss a hand-over, so there is no pause.
            Err(error) if error.is_busy() => {
                tracing::info!("waits on: {error}");
                continue;
            }
            Err(error) if error.is_lost() || error.is_retryable() => {
                tracing::warn!("does not lead: {error}");
            }
            Err(error) => return Err(error.into()),
        }
        let _ = tokio::time::timeout(PAUSE, until_true(stop.clone())).await;
    }
    Ok(())
}

/// Also when nobody is left who could say so.
pub(crate) async fn until_true(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
