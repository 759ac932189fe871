//! Log lines, emitted through `tracing` and labeled with the key's template. The key appears at
//! debug level, on losses and given-up releases, and where the manager shows keys.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{BodyState, Error, Holder};
use crate::loss::LossReason;
use crate::manager::engine::core::Core;
use crate::manager::engine::held::HeldLock;
use crate::manager::engine::renewal_monitor::RenewalProblems;
use crate::manager::telemetry::hold_events;
use crate::observer::event::{AcquirePath, Event, UNLABELED};
use crate::protocol::request::Request;
use crate::protocol::store_error::StoreError;
use crate::store::Note;
use crate::util::visible::Visible;

/// The target of every log line, so that one filter directive selects them all.
pub(crate) const TARGET: &str = "distlock";

pub(crate) fn label(hold: &HeldLock) -> &str {
    label_or_default(hold.options().label.as_deref())
}

fn label_or_default(label: Option<&str>) -> &str {
    label.unwrap_or(UNLABELED)
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the key if the manager shows keys.
fn visible_key(hold: &HeldLock) -> Option<&str> {
    hold.core.show_keys.then(|| hold.key())
}

fn address(hold: &HeldLock) -> &str {
    hold.core.address().unwrap_or("in this process")
}

/// Logs that a call is queued. `holder` is called only if the line is written.
pub(crate) fn queued(request: &Request, holder: impl FnOnce() -> Option<Holder>) {
    tracing::debug!(
        target: TARGET,
        lock = label_or_default(request.options.label.as_deref()),
        key = %Visible(request.key.as_str()),
        holder = holder().map(tracing::field::display),
        "queued"
    );
}

pub(crate) fn long_wait(
    core: &Core,
    request: &Request,
    waited: Duration,
    waiters: usize,
    holder: Option<Holder>,
    outage: Option<StoreError>,
) {
    let text = if outage.is_some() {
        "a call waits for long: the lock store cannot be used, and the call fails when its `wait` ends before the store is back"
    } else {
        "a call waits for long: it is one of `waiters` here for this key, and fails as busy when its `wait` ends before its turn"
    };
    let holder = holder.filter(|_| outage.is_none());
    tracing::info!(
        target: TARGET,
        lock = &*request.name(),
        key = core.show_keys.then(|| request.key.as_str()),
        store = core.address().unwrap_or("in this process"),
        waiters,
        waited_ms = millis(waited),
        wait_ms = millis(request.options.wait),
        holder = holder.as_ref().map(tracing::field::display),
        detail = outage.as_ref().map(tracing::field::display),
        "{text}"
    );
}

pub(crate) fn acquired(hold: &HeldLock, path: AcquirePath, waited: Duration) {
    tracing::debug!(
        target: TARGET,
        lock = label(hold),
        key = %Visible(hold.key()),
        fencing_token = hold.fencing_token().get(),
        path = path.as_str(),
        ?waited,
        "acquired"
    );
}

pub(crate) fn not_acquired(label: Option<&str>, error: &Error) {
    tracing::debug!(target: TARGET, lock = label_or_default(label), %error, "not acquired");
}

/// Logs a lost hold. `new_holder` is the current holder, if known.
pub(crate) fn lost(hold: &HeldLock, error: &Error, new_holder: Option<&str>) {
    let (lock, fencing_token) = (label(hold), hold.fencing_token().get());
    let reason = hold_events::loss_kind(error).map_or("max_hold_exceeded", |loss| loss.as_str());
    match error {
        Error::Lost {
            reason: LossReason::Revoked { .. },
            ..
        } => tracing::warn!(
            target: TARGET,
            lock,
            key = %Visible(hold.key()),
            store = address(hold),
            reason,
            fencing_token,
            detail = cause(error),
            "the lock was taken away from its holder, as somebody asked for: a body is stopped at its next await, and nobody else has \
             the lock before it was released, or its lease is over; see that its work may be repeated"
        ),
        // Requested, by a shutdown or by the lock's own `max_hold`.
        Error::Lost {
            reason: LossReason::ShutDown,
            ..
        }
        | Error::MaxHoldExceeded { .. } => tracing::warn!(
            target: TARGET,
            lock,
            key = %Visible(hold.key()),
            store = address(hold),
            reason,
            fencing_token,
            detail = cause(error),
            "the lock ended before its holder was done: see that its work is short enough, or raise `max_hold`, and that it \
             has ended before `shutdown`"
        ),
        Error::Lost {
            body: BodyState::Completed,
            ..
        } => tracing::warn!(
            target: TARGET,
            lock,
            key = %hold.key(),
            store = address(hold),
            reason,
            completed = true,
            unconfirmed_ms = millis(hold.unconfirmed_for()),
            new_holder = new_holder.unwrap_or("unknown"),
            fencing_token,
            detail = cause(error),
            "the lock was gone when its work had ended: another holder may have run at the same time; check what both have \
             written, and whether the store lost its data"
        ),
        _ => tracing::error!(
            target: TARGET,
            lock,
            key = %Visible(hold.key()),
            store = address(hold),
            reason,
            unconfirmed_ms = millis(hold.unconfirmed_for()),
            new_holder = new_holder.unwrap_or("unknown"),
            fencing_token,
            noticed_after = ?hold.overdue(),
            detail = cause(error),
            "the lock was lost while it was held: another holder may have run at the same time; check what both have \
             written, and have it refuse lower fencing tokens"
        ),
    }
}

/// Returns how a hold ended. The caller's error reports the outcome of its work.
fn cause(error: &Error) -> String {
    match error {
        Error::Lost { reason, .. } => reason.to_string(),
        Error::MaxHoldExceeded { max_hold, .. } => {
            format!("it was held for its max_hold of {max_hold:?}")
        }
        other => other.to_string(),
    }
}

pub(crate) fn released(hold: &HeldLock, held: Duration) {
    tracing::debug!(target: TARGET, lock = label(hold), key = %Visible(hold.key()), ?held, "released");
}

pub(crate) fn releases_abandoned(store: &str, lock: &str, key: &str, releases: usize) {
    tracing::warn!(
        target: TARGET,
        lock,
        key,
        store,
        releases,
        "releases were not answered and are not tried any more (`key` is one of them); what they left is free when its lease has ended: \
         look at the store, and at the way to it"
    );
}

/// Logs an event of the store, if it belongs in the log.
pub(crate) fn store_event(event: &Event, core: Option<&Arc<Core>>) {
    match event {
        Event::StoreUnavailable {
            address, detail, ..
        } => store_unavailable(address, detail, core),
        Event::StoreAvailable {
            address, downtime, ..
        } => tracing::info!(
            target: TARGET,
            store = &**address,
            downtime_ms = millis(*downtime),
            "the lock store can be used again"
        ),
        _ => {}
    }
}

/// Logs an outage of a server, with the holds and calls that it affects.
fn store_unavailable(store: &str, detail: &str, core: Option<&Arc<Core>>) {
    if !tracing::enabled!(target: TARGET, tracing::Level::WARN) {
        return;
    }
    let (held, waiting) = core.map_or((0, 0), |core| core.registry.count());
    let first_to_expire =
        core.and_then(|core| HeldLock::first_to_expire(core, core.registry.held().iter()));
    let first_to_expire = first_to_expire.as_ref();
    tracing::warn!(
        target: TARGET,
        store,
        held,
        waiting,
        lock = first_to_expire.map(label),
        key = first_to_expire.and_then(visible_key),
        lost_in_ms = first_to_expire.map(|hold| millis(hold.remaining())),
        %detail,
        "the lock store cannot be used: calls wait or fail, and what is held is lost when its lease cannot be renewed in time \
         (`lock` is the first, in `lost_in_ms`); look at the store, and at the way to it"
    );
}

/// Logs a note of the store.
pub(crate) fn store_note(note: &Note, core: Option<&Arc<Core>>) {
    match note {
        Note::Connected { address, namespace } => tracing::info!(
            target: TARGET,
            store = &**address,
            namespace = &**namespace,
            "connected to the lock store"
        ),
        Note::Reconnected {
            address,
            connection,
            downtime,
        } => tracing::warn!(
            target: TARGET,
            store = &**address,
            connection = connection.as_str(),
            downtime_ms = millis(*downtime),
            "a connection to the lock store was lost and is back: what is held is renewed and what is waited for is asked for \
             again; if this repeats, look at the server's log and its limits, and at what closes connections on the way"
        ),
        Note::NotAuthenticated(error) => tracing::warn!(
            target: TARGET,
            store = core.and_then(|core| core.address()).unwrap_or_default(),
            detail = %error,
            "the connections that live could not be told the credentials of the moment: they go on with those they have, until \
             the server takes them no more; see that source and server have the same user and password"
        ),
        Note::ClockJumped { address, by } => tracing::warn!(
            target: TARGET,
            store = &**address,
            jumped_ms = by / 1_000,
            "the clock of the lock store jumped (a machine that slept here looks the same): locks may end earlier there than they \
             were to; have its clock slewed, not set"
        ),
    }
}

pub(crate) fn renewed(holds: usize, failures: usize, took: Duration) {
    tracing::debug!(target: TARGET, holds, failures, ?took, "renewed");
}

/// Logs failed or late renewals. `first_to_expire` is the hold among them that is lost first.
pub(crate) fn renewal_problems(
    store: &str,
    problems: RenewalProblems,
    first_to_expire: &HeldLock,
    detail: &str,
) {
    let lost_in_ms = millis(first_to_expire.remaining());
    if problems.failed > 0 {
        tracing::warn!(
            target: TARGET,
            store,
            holds = problems.failed,
            slow = problems.slow,
            lock = label(first_to_expire),
            key = visible_key(first_to_expire),
            lost_in_ms,
            detail,
            "renewals fail and are tried again; `lock` is lost in `lost_in_ms` if none succeeds before: look at the store, and at \
             the way to it"
        );
    } else {
        tracing::warn!(
            target: TARGET,
            store,
            slow = problems.slow,
            lock = label(first_to_expire),
            key = visible_key(first_to_expire),
            slack_ms = millis(problems.slack),
            lost_in_ms,
            "slow_renewal: locks were renewed with less than a third of their lease left, `lock` with `slack_ms`; see whether \
             the store, the way to it or this process is overloaded, or raise the lease"
        );
    }
}

pub(crate) fn template_on_two_servers(lock: &str, installed: &str, other: &str) {
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
