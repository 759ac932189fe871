//! What a client does that is told nothing: a proxy stands before its server, or one that knows no
//! pushes. It looks for its grants, soon after it queued, and then less and less often; and each
//! command has one lock, for a proxy finds by its first key where it goes.

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

/// Looks for what is waited for, and tells what it finds as if the server had said it.
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
        // What goes wrong here is met by the manager's own looks, which tell it.
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
    // Who is still waited for is asked for again by the manager's own looks.
    for owner in missing {
        node.polls.forget(*owner);
    }
    let Some(occupant) = occupant else {
        return;
    };
    if let Some(owner) = occupant.ours
        && look.owners.contains(&owner)
        // Told once: it may be given back by now, and a grant that nobody knows of is given back
        // again. Where nothing comes of it, the manager's own looks find it.
        && node.polls.forget(owner)
    {
        (node.shared.events)(StoreEvent::Granted(Grant {
            key: look.key.clone(),
            owner,
            token: occupant.token,
            // It may be as old as the last look: confirmed first.
            granted_at: None,
            lease: LOOK_EVERY,
        }));
    }
}

/// A look at all of these, for a client that looks.
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

/// A renewal of all of these, for a client that looks.
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
