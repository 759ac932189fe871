//! Calls for a lock that their own call tree already holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Error;
use crate::key::LockKey;
use crate::lock::guard::LockGuard;
use crate::lock::scope::{self, Frame};
use crate::manager::LockManager;
use crate::manager::engine::acquire::AcquireCall;
use crate::observer::event::AcquirePath;
use crate::protocol::hold::GrantOrigin;
use crate::protocol::kind::Kind;
use crate::protocol::request::Request;

/// Returns the hold of the call tree that a call re-enters, or `None` if the call acquires a hold
/// of its own. Fails if the call would wait for its own call tree.
pub(crate) fn find_hold(
    manager: &LockManager,
    key: &LockKey,
    requested: Kind,
) -> Result<Option<Arc<Frame>>, Error> {
    let store = Some(&**manager.store_identity());
    let Some(frame) = scope::frames_of(store, key).next() else {
        return Ok(None);
    };
    let held = &frame.held;
    match (held.kind(), requested) {
        (Kind::Mutex, Kind::Mutex)
        | (Kind::Read, Kind::Read)
        | (Kind::Write, Kind::Read | Kind::Write) => Ok(Some(frame)),
        (Kind::Permits { .. }, Kind::Permits { permits, weight }) => {
            let frames = scope::frames_of(store, key).filter(|frame| frame.held.is_held());
            // A hold may have several frames.
            let holds: BTreeMap<_, _> = frames
                .map(|frame| (frame.held.entry.owner, frame.held.kind().weight()))
                .collect();
            let in_use: u32 = holds.values().sum();
            if in_use + weight > permits {
                return Err(Error::config(format!(
                    "lock `{key}`: this call tree already holds {in_use} permits, so it would wait for itself for \
                     {weight} more of {permits}; acquire all of them in one call, or release the others first"
                )));
            }
            Ok(None)
        }
        (existing, requested) => {
            Err(held
                .check_error()
                .unwrap_or_else(|| match (existing, requested) {
                    (Kind::Read, Kind::Write) => Error::UpgradeDeadlock {
                        key: key.to_string(),
                    },
                    _ => Error::WrongKind {
                        key: key.to_string(),
                        requested: requested.lock_kind(),
                        existing: existing.lock_kind(),
                        holders: vec![manager.as_holder(held)],
                    },
                }))
        }
    }
}

/// Re-enters a hold of the call tree. This needs no round trip, but siblings take turns, unless
/// they only read.
pub(crate) async fn reenter(
    manager: &LockManager,
    frame: &Frame,
    request: Request,
) -> Result<LockGuard, Error> {
    let held = &frame.held;
    let mut call = AcquireCall::begin(manager.core(), request);
    let acquired = match held.kind() {
        Kind::Read => held
            .check()
            .map(|()| LockGuard::reentered(manager.clone(), held.clone(), None)),
        _ => take_turn(manager, frame, &call.request).await,
    };
    match &acquired {
        Ok(_) => {
            let origin = GrantOrigin {
                path: AcquirePath::Reentered,
                granted_at: None,
            };
            call.finish_acquired(origin, held.fencing_token());
        }
        Err(error) => call.finish_failed(error),
    }
    acquired
}

async fn take_turn(
    manager: &LockManager,
    frame: &Frame,
    request: &Request,
) -> Result<LockGuard, Error> {
    let (core, held) = (manager.core(), &frame.held);
    let reentry_lock = frame.reentry_lock.clone();
    let turn = if request.is_try_acquire() {
        reentry_lock.try_lock_owned().ok()
    } else {
        tokio::select! {
            biased;
            turn = reentry_lock.lock_owned() => Some(turn),
            _ = held.lost() => None,
            // The manager's timer, because the caller need not be in a tokio runtime.
            () = core.executor.sleep(request.options.wait()) => None,
        }
    };
    match (turn, held.check_error()) {
        (_, Some(error)) => Err(error),
        (Some(turn), None) => Ok(LockGuard::reentered(
            manager.clone(),
            held.clone(),
            Some(turn),
        )),
        (None, None) => Err(Error::Busy {
            key: request.key.to_string(),
            waited: core.clock.now().since(request.started),
            holders: vec![manager.as_holder(held)],
            held_keys: Vec::new(),
        }),
    }
}
