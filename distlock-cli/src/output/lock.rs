//! A lock as JSON: the same object wherever a lock is shown.

use distlock::{Holder, LockState};
use serde_json::{Value, json};

use crate::output::time::{ago, millis, rfc3339};

/// Returns a lock as JSON.
pub(crate) fn as_json(lock: &LockState) -> Value {
    let holders: Vec<_> = lock.holders.iter().map(holder).collect();
    json!({
        "key": lock.key,
        "holders": holders,
        "expires_in_ms": millis(lock.expires_in),
        "queue_length": lock.queue_length,
        "last_fencing_token": lock.last_fencing_token.map(|token| token.get()),
    })
}

/// Returns a holder as JSON.
pub(crate) fn holder(holder: &Holder) -> Value {
    json!({
        "client": holder.client,
        "fencing_token": holder.fencing_token.map(|token| token.get()),
        "held_since": rfc3339(holder.held_since),
        "held_ms": millis(Some(ago(holder.held_since))),
        "kept_until": holder.kept_until.map(rfc3339),
    })
}
