//! A lock as JSON: the same object wherever a lock is shown.

use distlock::{HoldKind, Holder, LockKind, LockState};
use serde_json::{Value, json};

use crate::output::time::{ago, millis, rfc3339};

/// Returns a lock as JSON.
pub(crate) fn as_json(lock: &LockState) -> Value {
    let holders: Vec<_> = lock.holders.iter().map(holder).collect();
    json!({
        "key": lock.key,
        "kind": lock.kind.map(kind),
        "permits": match lock.kind {
            Some(LockKind::Semaphore { permits }) => Some(permits),
            _ => None,
        },
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
        "metadata": holder.metadata,
        "kind": holder.kind.as_str(),
        "weight": holder.weight,
        "fencing_token": holder.fencing_token.map(|token| token.get()),
        "held_since": rfc3339(holder.held_since),
        "held_ms": millis(Some(ago(holder.held_since))),
        "kept_until": holder.kept_until.map(rfc3339),
    })
}

fn kind(kind: LockKind) -> &'static str {
    match kind {
        LockKind::Mutex => "mutex",
        LockKind::ReadWrite => "read_write",
        LockKind::Semaphore { .. } => "semaphore",
        _ => "other",
    }
}

/// Returns a holder as text: its client, with its metadata, and its mode or its permits, such as
/// `web-1:812 [order 42] (read)` or `web-1:812 (2 of 3)`.
pub(crate) fn client(lock: &LockState, holder: &Holder) -> String {
    let client = with_metadata(&holder.client, holder.metadata.as_deref());
    match (lock.kind, holder.kind) {
        (Some(LockKind::Semaphore { permits }), _) => {
            format!("{client} ({} of {permits})", holder.weight)
        }
        (_, HoldKind::Mutex) => client,
        (_, mode) => format!("{client} ({mode})"),
    }
}

pub(crate) fn with_metadata(client: &str, metadata: Option<&str>) -> String {
    match metadata {
        Some(metadata) => format!("{client} [{metadata}]"),
        None => client.to_owned(),
    }
}
