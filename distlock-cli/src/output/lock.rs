//! A lock as JSON: the same object wherever a lock is shown.

use distlock::{Holder, KeyState};
use serde_json::{Value, json};

use crate::output::time::{ago, millis, moment};

/// Returns a lock as JSON.
pub(crate) fn as_json(lock: &KeyState) -> Value {
    let holders: Vec<_> = lock.holders().iter().map(holder).collect();
    json!({
        "key": lock.key,
        "holders": holders,
        "fencing_token": lock.fencing_token.map(|token| token.get()),
        "left_ms": millis(lock.remaining),
        "waiters": lock.waiters,
    })
}

/// Returns a holder as JSON.
pub(crate) fn holder(holder: &Holder) -> Value {
    json!({
        "client": holder.client,
        "since": moment(holder.held_since),
        "held_ms": millis(Some(ago(holder.held_since))),
        "kept_until": holder.kept_until.map(moment),
    })
}
