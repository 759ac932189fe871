//! What is told to `tracing`. Labelled by the key's template, never by the key (except at debug level).

use std::time::Duration;

use crate::error::{Error, LossReason};
use crate::manager::hold::Hold;
use crate::protocol::trouble::Trouble;

/// The name of the target, so that one filter line finds it all.
const TARGET: &str = "distlock";

pub(crate) fn label(hold: &Hold) -> &str {
    hold.options().label.as_deref().unwrap_or("unlabelled")
}

pub(crate) fn acquired(hold: &Hold, waited: Duration) {
    tracing::debug!(
        target: TARGET,
        lock = label(hold),
        key = %hold.key(),
        fencing_token = hold.token().get(),
        ?waited,
        "acquired"
    );
}

pub(crate) fn refused(label: Option<&str>, error: &Error) {
    tracing::debug!(target: TARGET, lock = label.unwrap_or("unlabelled"), %error, "not acquired");
}

pub(crate) fn lost(hold: &Hold, error: &Error) {
    let (lock, fencing_token) = (label(hold), hold.token().get());
    match error {
        // Asked for: by a shutdown, an operator, or its own `max_hold`.
        Error::Lost {
            reason: LossReason::ShutDown | LossReason::Revoked { .. },
            ..
        }
        | Error::HoldLimit { .. } => tracing::warn!(
            target: TARGET,
            lock,
            key = %hold.key(),
            fencing_token,
            %error,
            "the lock ended before its holder was done"
        ),
        _ => tracing::error!(
            target: TARGET,
            lock,
            key = %hold.key(),
            fencing_token,
            noticed_after = ?hold.overdue(),
            %error,
            "the lock was lost while it was held: another holder may have run at the same time"
        ),
    }
}

pub(crate) fn released(hold: &Hold, held: Duration) {
    tracing::debug!(target: TARGET, lock = label(hold), key = %hold.key(), ?held, "released");
}

pub(crate) fn releases_given_up(key: &str, releases: usize) {
    tracing::warn!(
        target: TARGET,
        key,
        releases,
        "releases were not answered and are not tried any more (`key` is one of them); what they left is free when its lease has ended"
    );
}

pub(crate) fn store_lost(trouble: &Trouble) {
    tracing::warn!(
        target: TARGET,
        detail = %trouble,
        "the lock store cannot be used: calls wait or fail, and what is held is lost when its lease cannot be renewed in time"
    );
}

pub(crate) fn not_authenticated(trouble: &Trouble) {
    tracing::warn!(
        target: TARGET,
        detail = %trouble,
        "the connections that live could not be told the credentials of the moment: they go on with those they have, until \
         the server takes them no more"
    );
}

pub(crate) fn store_back(store: &str, gap: Duration) {
    tracing::info!(target: TARGET, store, ?gap, "the lock store can be used again");
}

/// Whether anybody listens to each single renewal.
pub(crate) fn shows_renewals() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::TRACE)
}

pub(crate) fn renewed(holds: usize, failures: usize, took: Duration) {
    tracing::trace!(target: TARGET, holds, failures, ?took, "renewed");
}

/// `nearest` is the hold among them that is lost first.
pub(crate) fn renewals_fail(store: &str, holds: usize, nearest: &Hold, detail: &str) {
    tracing::warn!(
        target: TARGET,
        store,
        holds,
        lock = label(nearest),
        lost_in = ?nearest.remaining(),
        detail,
        "renewals fail and are tried again; `lock` is lost in `lost_in` if none succeeds before"
    );
}

pub(crate) fn two_servers(lock: &str, installed: &str, other: &str) {
    tracing::warn!(
        target: TARGET,
        lock,
        installed,
        other,
        "this template was locked on the installed manager's server and under another address: unless both name the same server, these locks do not exclude each other; give both calls the same manager, or the templates different names"
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
