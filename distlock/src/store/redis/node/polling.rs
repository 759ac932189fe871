//! Polling by a client that gets no pushes, because of a proxy or a server that has none. It checks
//! for its grants soon after it queued, and then less and less often. Every command concerns one
//! lock, because a proxy routes it by its first key.

use std::sync::{Arc, Weak};

use tokio::time::Instant;

use crate::protocol::messages::{CheckQueue, CheckQueueReply, Grant, HolderView, NO_TOKEN};
use crate::protocol::timing::QUEUE_CHECK_INTERVAL;
use crate::store::StoreEvent;
use crate::store::redis::node::Node;
use crate::store::redis::node::check_schedule::CheckSchedule;

/// Runs the due queue checks, and reports grants as if the server had pushed them.
pub(crate) async fn run(node: Weak<Node>, check_schedule: Arc<CheckSchedule>) {
    loop {
        let added = check_schedule.added.notified();
        let Some(due_at) = check_schedule.next_due() else {
            added.await;
            continue;
        };
        tokio::select! {
            () = added => continue,
            () = tokio::time::sleep_until(due_at) => {}
        }
        let Some(node) = node.upgrade() else {
            return;
        };
        let checks = check_schedule.take_due(Instant::now());
        // Errors are left to the manager's own queue checks, which report them.
        if let Ok(replies) = node.check_queues(&checks, QUEUE_CHECK_INTERVAL).await {
            for (check, reply) in checks.iter().zip(replies) {
                report_grant(&node, check, &reply);
            }
        }
    }
}

fn report_grant(node: &Node, check: &CheckQueue, reply: &CheckQueueReply) {
    let CheckQueueReply::Checked {
        holders,
        holding,
        missing,
        ..
    } = reply
    else {
        return;
    };
    // The manager's own queue checks acquire again for every owner that still waits.
    for owner in missing {
        node.check_schedule.remove(*owner);
    }
    for owner in holding {
        // Reported once. The lock may have been released by now, and a grant without an owner is
        // released again. If the report is lost, the manager's own queue checks find the grant.
        if node.check_schedule.remove(*owner) {
            let is_owner = |holder: &&HolderView| holder.local_owner == Some(*owner);
            let holder = holders.iter().find(is_owner);
            (node.shared.client.events)(StoreEvent::Granted(Grant {
                key: check.key.clone(),
                is_counted: check.is_counted,
                owner: *owner,
                // Replaced when the grant is confirmed.
                token: holder.map_or(NO_TOKEN, |holder| holder.token),
                // The grant may be as old as the previous check, so it is confirmed first.
                granted_at: None,
                lease: QUEUE_CHECK_INTERVAL,
            }));
        }
    }
}
