//! What is told to `tracing`. Labelled by the key's template, never by the key (except at debug level).

use std::time::Duration;

use crate::error::Error;
use crate::hold::Hold;

/// The name of the target, so that one filter line finds it all.
const TARGET: &str = "distlock";

pub(crate) fn label(hold: &Hold) -> &str {
    hold.label.as_deref().unwrap_or("unlabelled")
}

pub(crate) fn acquired(hold: &Hold, waited: Duration) {
    tracing::debug!(
        target: TARGET,
        lock = label(hold),
        key = %hold.key,
        fencing_token = hold.token.get(),
        ?waited,
        "acquired"
    );
}

pub(crate) fn refused(label: Option<&str>, error: &Error) {
    tracing::debug!(target: TARGET, lock = label.unwrap_or("unlabelled"), %error, "not acquired");
}

pub(crate) fn lost(hold: &Hold, error: &Error) {
    tracing::warn!(
        target: TARGET,
        lock = label(hold),
        fencing_token = hold.token.get(),
        %error,
        "the lock ended before its body"
    );
}

pub(crate) fn released(hold: &Hold, held: Duration) {
    tracing::debug!(target: TARGET, lock = label(hold), key = %hold.key, ?held, "released");
}

pub(crate) fn release_failed(key: &str, detail: &str) {
    tracing::warn!(
        target: TARGET,
        key,
        detail,
        "a release was not answered; the lock is free when its lease has ended"
    );
}

/// Whether anybody listens to each single renewal.
pub(crate) fn shows_renewals() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::TRACE)
}

pub(crate) fn renewed(holds: usize, failures: usize, took: Duration) {
    tracing::trace!(target: TARGET, holds, failures, ?took, "renewed");
}

pub(crate) fn renewal_failed(lock: &str, holds: usize, detail: &str) {
    tracing::warn!(
        target: TARGET,
        lock,
        holds,
        detail,
        "a renewal failed and is tried again; if none succeeds before the lease ends, the lock is lost"
    );
}

pub(crate) fn eviction(store: &str, policy: &str) {
    tracing::warn!(
        target: TARGET,
        store,
        policy,
        "this server evicts keys when its memory is full, and locks are the first to go; set maxmemory-policy noeviction"
    );
}
