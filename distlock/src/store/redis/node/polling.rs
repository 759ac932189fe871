//! Polling by a client that gets no pushes, because of a proxy or a server that has none. It checks
//! for its grants soon after it queued, and then less and less often. Every command concerns one
//! lock, because a proxy routes it by its first key.

use std::slice::from_ref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::FutureExt;
use tokio::time::Instant;

use crate::protocol::timing::LOOK_EVERY;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Grant, Look, LookReply, Renewal, Renewed};
use crate::store::StoreEvent;
use crate::store::redis::node::Node;
use crate::store::redis::node::at_once;
use crate::store::redis::node::polls::Polls;

/// Runs the due queue checks, and reports grants as if the server had pushed them.
pub(crate) async fn keep(node: Weak<Node>, polls: Arc<Polls>) {
    loop {
        let added = polls.added.notified();
        let Some(at) = polls.next() else {
            added.await;
            continue;
        };
        tokio::select! {
            () = added => continue,
            () = tokio::time::sleep_until(at) => {}
        }
        let Some(node) = node.upgrade() else {
            return;
        };
        let looks = polls.due(Instant::now());
        // Errors are left to the manager's own queue checks, which report them.
        if let Ok(replies) = look(&node, &looks, LOOK_EVERY).await {
            for (look, reply) in looks.iter().zip(replies) {
                tell(&node, look, &reply);
            }
        }
    }
}

fn tell(node: &Node, look: &Look, reply: &LookReply) {
    let LookReply::Seen { occupant, missing } = reply else {
        return;
    };
    // The manager's own queue checks acquire again for every owner that still waits.
    for owner in missing {
        node.polls.forget(*owner);
    }
    let Some(occupant) = occupant else {
        return;
    };
    if let Some(owner) = occupant.ours
        && look.owners.contains(&owner)
        // Reported once. The lock may have been released by now, and a grant without an owner is
        // released again. If the report is lost, the manager's own queue checks find the grant.
        && node.polls.forget(owner)
    {
        (node.shared.events)(StoreEvent::Granted(Grant {
            key: look.key.clone(),
            owner,
            token: occupant.token,
            // The grant may be as old as the previous check, so it is confirmed first.
            granted_at: None,
            lease: LOOK_EVERY,
        }));
    }
}

/// Runs queue checks for a polling client, with one command per lock.
pub(crate) async fn look(
    node: &Node,
    looks: &[Look],
    timeout: Duration,
) -> Result<Vec<LookReply>, Trouble> {
    let looks = looks
        .iter()
        .map(|look| node.run(None, from_ref(look), timeout).boxed());
    at_once::look(looks.collect()).await
}

/// Runs renewals for a polling client, with one command per lock.
pub(crate) async fn renew(
    node: &Node,
    batch: &[Renewal],
    timeout: Duration,
) -> Result<Renewed, Trouble> {
    let now = node.shared.clock.now();
    let renewals = batch
        .iter()
        .map(|renewal| node.run(None, from_ref(renewal), timeout).boxed());
    at_once::renew(now, renewals.collect()).await
}
