//! A trial lock that one call holds and another waits for, with the permissions of the configured
//! user.

use std::time::{Duration, Instant};

use distlock::{__doctor, Error, LockManager, Outage};

use crate::doctor::diagnostic::{Diagnostic, Severity};

/// The key of the trial lock.
const KEY: &str = "distlock-doctor";

/// How long to wait for another doctor, and for a hand-off.
const WAIT: Duration = Duration::from_secs(5);

/// A slower hand-off was found by polling, not by a notification.
const MAX_HAND_OFF: Duration = Duration::from_millis(40);

/// The pause between two checks of the trial's queue.
const QUEUE_CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// Acquires a lock, lets a second call wait for it, hands it over, and releases it.
pub(super) async fn of(manager: &LockManager) -> Diagnostic {
    let handed_off = hand_off(manager).await;
    let (severity, help) = match &handed_off {
        Ok(took) if took.is_none_or(|took| took <= MAX_HAND_OFF) => (Severity::Ok, ""),
        Ok(_) => (
            Severity::Warning,
            "if this is so each time, waiters poll instead of being notified: grant the user the permissions for a \
             quick hand-off (docs/internals/storage.md lists them), and use no proxy that drops messages",
        ),
        Err(Error::Busy { .. }) => (Severity::Warning, "another doctor is running: retry"),
        Err(Error::Unavailable {
            outage: Outage::Denied,
            ..
        }) => (
            Severity::Error,
            "grant the user the permissions that docs/internals/storage.md lists",
        ),
        Err(
            Error::Config { .. }
            | Error::Unavailable {
                outage: Outage::Misconfigured,
                ..
            },
        ) => (
            Severity::Error,
            "change the URL or the setting that the message names",
        ),
        Err(_) => (
            Severity::Error,
            "no lock can be acquired: fix the cause that the message names",
        ),
    };
    let message = match handed_off {
        Ok(Some(took)) => format!("acquired, waited for, handed off after {took:.1?} and released"),
        Ok(None) => "acquired and released".to_owned(),
        Err(error) => error.to_string(),
    };
    Diagnostic {
        server: __doctor::address(manager).to_owned(),
        check: "locking",
        severity,
        message,
        help: help.to_owned(),
    }
}

/// Returns the duration of a hand-off from one call to the next, or `None` over a quorum, which has
/// no queue.
async fn hand_off(manager: &LockManager) -> Result<Option<Duration>, Error> {
    let lock = manager.lock(KEY).wait(WAIT).lease(WAIT * 2);
    let first = lock.acquire().await?;
    if matches!(manager.inspect(KEY).await, Ok(state) if !state.servers.is_empty()) {
        return first.release().await.map(|()| None);
    }
    let release = async {
        let started = Instant::now();
        while started.elapsed() < WAIT
            && matches!(manager.inspect(KEY).await, Ok(state) if state.queue_length == 0)
        {
            tokio::time::sleep(QUEUE_CHECK_INTERVAL).await;
        }
        let released = Instant::now();
        first.release().await.map(|()| released)
    };
    let wait = async {
        let second = lock.acquire().await?;
        let acquired = Instant::now();
        second.release().await.map(|()| acquired)
    };
    let (released, acquired) = tokio::join!(release, wait);
    Ok(Some(acquired?.saturating_duration_since(released?)))
}
