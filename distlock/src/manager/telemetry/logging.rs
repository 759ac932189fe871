//! Log lines, emitted through `tracing` and labeled with the key's template. Every text is recorded
//! as a string, which subscribers quote. The key appears at debug level, on holds that ended early,
//! given-up releases and unrecorded successes, and where the manager shows keys.

use std::sync::Arc;
use std::time::Duration;

use crate::config::options::Options;
use crate::error::{BodyState, Error, Holder, date_and_time};
use crate::fencing::FencingToken;
use crate::loss::LossReason;
use crate::manager::core::Core;
use crate::manager::core::held::HoldHandle;
use crate::observer::event::{AcquirePath, Event, HoldOutcome, UNLABELED};
use crate::protocol::kind::Kind;
use crate::protocol::outcome::HoldEnd;
use crate::protocol::request::Request;
use crate::protocol::store_error::StoreError;
use crate::store::Note;
use crate::util::visible::Visible;

/// The consequence of a hold that ended before its holder released it.
const STOPS: &str = "a body stops at its next await (with `on_lost = \"finish\"` it continues, as does code that \
                     uses a guard)";

/// The target of every log line, so that one filter directive selects them all.
pub(crate) const TARGET: &str = "distlock";

pub(crate) fn label(hold: &HoldHandle) -> &str {
    label_or_default(hold.options().label.as_deref())
}

fn label_or_default(label: Option<&str>) -> &str {
    label.unwrap_or(UNLABELED)
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the key if the manager shows keys.
fn visible_key(hold: &HoldHandle) -> Option<&str> {
    hold.core.show_keys.then(|| hold.key())
}

fn public_token(hold: &HoldHandle) -> Option<u64> {
    hold.public_token().map(FencingToken::get)
}

fn address(hold: &HoldHandle) -> &str {
    hold.core.address().unwrap_or("in this process")
}

/// Logs that a call is queued. `holder` is called only if the line is written.
pub(crate) fn queued(request: &Request, holder: impl FnOnce() -> Option<Holder>) {
    tracing::debug!(
        target: TARGET,
        lock = label_or_default(request.options.label.as_deref()),
        key = Visible(request.key.as_str()).to_string(),
        holder = holder().map(|holder| holder.to_string()),
        "queued"
    );
}

pub(crate) fn long_wait(
    core: &Core,
    request: &Request,
    waited: Duration,
    waiters: usize,
    holder: Option<Holder>,
    error: Option<StoreError>,
) {
    let text = if error.is_some() {
        "still waiting for the lock: the lock store is unavailable, and the call fails after `wait_ms` unless the \
         store is back; see `detail`"
    } else {
        "still waiting for the lock, as one of `waiters` calls of this client: the call fails as busy after `wait_ms` \
         unless it acquires the lock; run `distlock inspect KEY`"
    };
    let advice = match error {
        None if !core.show_keys => " (`show_keys` adds the key to this line)",
        _ => "",
    };
    let holder = holder.filter(|_| error.is_none());
    tracing::info!(
        target: TARGET,
        lock = &*request.name(),
        key = core.show_keys.then(|| request.key.as_str()),
        store = core.address().unwrap_or("in this process"),
        waiters,
        waited_ms = millis(waited),
        wait_ms = millis(request.options.wait()),
        holder = holder.map(|holder| holder.to_string()),
        detail = error.map(|error| error.to_string()),
        "{text}{advice}"
    );
}

/// Logs the first call for a key with another number of permits than the last call that was
/// granted, which had `last`.
pub(crate) fn other_permits(core: &Arc<Core>, request: &Arc<Request>, last: u32) {
    let Kind::Permits { permits, .. } = request.kind else {
        return;
    };
    if !core.other_permits.record(request.key.as_str()) {
        return;
    }
    let (log_core, request) = (core.clone(), request.clone());
    core.spawn_logging(move || {
        tracing::info!(
            target: TARGET,
            lock = &*request.name(),
            key = log_core.show_keys.then(|| request.key.as_str()),
            store = log_core.address().unwrap_or("in this process"),
            permits,
            last_permits = last,
            "semaphore with two numbers of permits (`permits` of this call, `last_permits` of the last call that was \
             granted): up to the largest number may be held; let all calls pass the same number, unless a deployment \
             changes it"
        );
    });
}

pub(crate) fn acquired(hold: &HoldHandle, path: AcquirePath, waited: Duration) {
    tracing::debug!(
        target: TARGET,
        lock = label(hold),
        key = Visible(hold.key()).to_string(),
        fencing_token = public_token(hold),
        path = path.as_str(),
        ?waited,
        "acquired"
    );
}

/// Logs that a call ends without its lock.
pub(crate) fn not_acquired(core: &Core, options: &Options, error: &Error) {
    let lock = label_or_default(options.label.as_deref());
    if options.is_skip(error) {
        skipped(core, lock, error);
    } else {
        tracing::debug!(target: TARGET, lock, error = error.to_string(), "not acquired");
    }
}

/// Logs a skipped call. The first one of each name is logged at INFO.
pub(crate) fn skipped(core: &Core, lock: &str, error: &Error) {
    if !core.skips.record(lock) {
        tracing::debug!(target: TARGET, lock, error = error.to_string(), "skipped");
    } else {
        let holder = error.holders().first();
        let (last_success, next) = match error {
            Error::AlreadyRan {
                last_success, next, ..
            } => (
                Some(date_and_time(*last_success)),
                Some(date_and_time(*next)),
            ),
            _ => (None, None),
        };
        let text = if let Error::AlreadyRan { .. } = error {
            "call skipped: its work has already succeeded, and may run again from `next`"
        } else if let Error::RunIfFalse { .. } = error {
            "call skipped: its `run_if` is false, so the body did not run"
        } else if holder.is_some_and(|holder| holder.kept_until.is_some()) {
            "call skipped: `min_hold` keeps the key of finished work, so that it is not repeated"
        } else {
            "call skipped: other calls hold the lock or wait for it, so the body did not run; allow a longer `wait` if it \
             must run"
        };
        tracing::info!(
            target: TARGET,
            lock,
            key = error.key().filter(|_| core.show_keys),
            store = core.address().unwrap_or("in this process"),
            holder = holder.map(|holder| holder.to_string()),
            last_success,
            next,
            "{text} (further skips of `lock` are logged at DEBUG)"
        );
    }
}

/// Logs how a hold ended before its holder released it. `current_holder` is the holder of the lock
/// now, and `newer_token` a later token in its fence, if they are known.
pub(crate) fn lost(
    hold: &HoldHandle,
    end: &HoldEnd,
    current_holder: Option<&str>,
    newer_token: Option<FencingToken>,
) {
    match end {
        HoldEnd::Lost(reason) => lost_by(hold, reason, current_holder, newer_token),
        HoldEnd::MaxHold => {
            let max_hold = hold.options().max_hold.unwrap_or_default();
            let detail = format!("held for its max_hold of {max_hold:?}");
            tracing::warn!(
                target: TARGET,
                lock = label(hold),
                key = Visible(hold.key()).to_string(),
                store = address(hold),
                reason = HoldOutcome::MaxHoldExceeded.as_str(),
                fencing_token = public_token(hold),
                detail,
                "lock ended before its holder finished: the work may be half done; shorten the work or raise `max_hold`"
            );
        }
        HoldEnd::Released | HoldEnd::Unclaimed => {}
    }
}

fn lost_by(
    hold: &HoldHandle,
    loss: &LossReason,
    current_holder: Option<&str>,
    newer_token: Option<FencingToken>,
) {
    let (lock, fencing_token) = (label(hold), public_token(hold));
    let (key, store) = (Visible(hold.key()).to_string(), address(hold));
    let new_holder = current_holder.unwrap_or("unknown");
    let newer_token = newer_token.map(FencingToken::get);
    let newer = newer_token.map_or("", |_| ", and the fence has the later token `newer_token`");
    let (reason, detail) = (loss.as_str(), loss.to_string());
    let (consequence, overdue) = match loss {
        LossReason::Revoked { .. } => {
            return tracing::warn!(
                target: TARGET,
                lock,
                key,
                store,
                reason,
                fencing_token,
                detail,
                "lock revoked: {STOPS}, and no other client can acquire the lock until it is released or expires; \
                 check that the work can be repeated"
            );
        }
        // The service ends, as it was asked to.
        LossReason::ShutDown => {
            return tracing::info!(
                target: TARGET,
                lock,
                key,
                store,
                reason,
                fencing_token,
                "lock ended by `shutdown`: {STOPS}; let work finish before `shutdown` if it must not be half done"
            );
        }
        LossReason::Gone if hold.body_state(loss) == BodyState::Completed => {
            return tracing::warn!(
                target: TARGET,
                lock,
                key,
                store,
                reason,
                completed = true,
                unconfirmed_ms = millis(hold.unconfirmed_for()),
                new_holder,
                newer_token,
                fencing_token,
                detail,
                "lock gone after its work finished: another holder may have run at the same time{newer}; check what \
                 both wrote, and whether the store lost its data"
            );
        }
        LossReason::Gone => ("another holder may have run at the same time", None),
        LossReason::NotRenewed { overdue, .. } => (STOPS, Some(*overdue)),
    };
    let remedy = if overdue.is_none() || newer_token.is_some() {
        "check what both wrote, and make the resource reject lower fencing tokens"
    } else {
        "check for partial effects before the work is repeated"
    };
    tracing::error!(
        target: TARGET,
        lock,
        key,
        store,
        reason,
        unconfirmed_ms = millis(hold.unconfirmed_for()),
        new_holder,
        newer_token,
        fencing_token,
        overdue = overdue.map(tracing::field::debug),
        detail,
        "lock lost while held: {consequence}{newer}; {remedy}"
    );
}

pub(crate) fn released(hold: &HoldHandle) {
    let key = || Visible(hold.key()).to_string();
    tracing::debug!(target: TARGET, lock = label(hold), key = key(), held = ?hold.age(), "released");
}

pub(crate) fn releases_abandoned(store: &str, lock: &str, key: &str, releases: usize) {
    tracing::warn!(
        target: TARGET,
        lock,
        key,
        store,
        releases,
        "gave up on releasing locks (`key` is one of them): the store did not confirm the releases, so other \
         calls may have to wait for the end of the leases; check the store and the network"
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
            "lock store available again"
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
        core.and_then(|core| HoldHandle::first_to_expire(core, core.registry.held().iter()));
    let first_to_expire = first_to_expire.as_ref();
    tracing::warn!(
        target: TARGET,
        store,
        held,
        waiting,
        lock = first_to_expire.map(label),
        key = first_to_expire.and_then(visible_key),
        lost_in_ms = first_to_expire.map(|hold| millis(hold.remaining())),
        detail,
        "lock store unavailable: calls wait or fail, and held locks are lost unless renewed in time (`lock` first, in \
         `lost_in_ms`); see `detail`"
    );
}

/// Logs a note of the store.
pub(crate) fn store_note(note: &Note) {
    match note {
        Note::Connected { address, namespace } => tracing::info!(
            target: TARGET, store = &**address,
            namespace = &**namespace,
            "connected to the lock store"
        ),
        Note::Reconnected {
            address,
            connection,
            downtime,
        } => tracing::warn!(
            target: TARGET, store = &**address,
            connection = connection.as_str(),
            downtime_ms = millis(*downtime),
            "reconnected to the lock store: held locks are renewed, and waiting calls repeat their requests; if this \
             recurs, check the server's log and limits, and the proxies in between"
        ),
        Note::NotAuthenticated { address, error } => tracing::warn!(
            target: TARGET, store = &**address, detail = error.to_string(),
            "failed to re-authenticate open connections: they keep the previous credentials until the server rejects \
             them; check that the credentials provider and the server have the same user and password"
        ),
        Note::Polls { address } => tracing::info!(
            target: TARGET, store = &**address,
            "no messages arrive from the lock store, as behind a pooler: a hand-off takes up to half a second"
        ),
        Note::Evicts { address, policy } => tracing::warn!(
            target: TARGET, store = &**address, policy,
            "server evicts keys when its memory is full: locks are evicted first; set `maxmemory-policy noeviction`"
        ),
    }
}

pub(crate) fn renewed(holds: usize, failures: usize, took: Duration) {
    tracing::debug!(target: TARGET, holds, failures, ?took, "renewed");
}

/// Logs failed renewals of `holds`. `first_to_expire` is the one that will be lost first.
pub(crate) fn renewals_failed(
    store: &str,
    holds: usize,
    first_to_expire: &HoldHandle,
    detail: &str,
) {
    tracing::warn!(
        target: TARGET,
        store,
        holds,
        lock = label(first_to_expire),
        key = visible_key(first_to_expire),
        lost_in_ms = millis(first_to_expire.remaining()),
        detail,
        "renewals failed and are being retried: `lock` is lost in `lost_in_ms` unless one succeeds; check the \
         store and the network"
    );
}

/// Logs the slow renewals of a batch. `slowest` had the least time left, `slack`.
pub(crate) fn renewals_slow(store: &str, slow: usize, slack: Duration, slowest: &HoldHandle) {
    tracing::warn!(
        target: TARGET,
        store,
        slow,
        lock = label(slowest),
        key = visible_key(slowest),
        slack_ms = millis(slack),
        lost_in_ms = millis(slowest.remaining()),
        "slow_renewal: locks were renewed with less than a third of their lease left (at least `slack_ms`; \
         `lock` is one of them); check the store, the network and this process for overload, or raise the lease"
    );
}

pub(crate) fn template_on_two_servers(lock: &str, installed: &str, other: &str) {
    tracing::warn!(
        target: TARGET,
        lock,
        installed,
        other,
        "template locked at two addresses (`installed` and `other`): unless both are the same server, these locks do \
         not exclude each other; use one manager for both calls, or give the templates different names"
    );
}
