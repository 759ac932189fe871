//! What a client does that is told nothing: a proxy stands before its server, or one that knows no pushes. It looks for
//! its grants, soon after it queued, and then less and less often; and each command has one lock, for a proxy finds
//! by its first key where it goes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::key::LockKey;
use crate::mutex::lock;
use crate::protocol::timing::LOOK_EVERY;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Grant, Look, LookReply, Owner, Renewal, RenewalFailure, Renewed};
use crate::store::StoreEvent;
use crate::store::redis::node::Node;

/// How soon after it queued a call is looked for.
const FIRST_LOOK: Duration = Duration::from_millis(50);

/// Looks that are under way together.
const AT_ONCE: usize = 64;

/// The calls that are looked for.
#[derive(Debug, Default)]
pub(super) struct Polls {
    polled: Mutex<HashMap<Owner, Polled>>,
    added: Notify,
}

#[derive(Debug)]
struct Polled {
    key: LockKey,
    at: Instant,
    pause: Duration,
}

impl Polls {
    pub(super) fn add(&self, key: &LockKey, owner: Owner) {
        let polled = Polled {
            key: key.clone(),
            at: Instant::now() + FIRST_LOOK,
            pause: FIRST_LOOK,
        };
        lock(&self.polled).entry(owner).or_insert(polled);
        self.added.notify_one();
    }

    pub(super) fn forget(&self, owner: Owner) {
        lock(&self.polled).remove(&owner);
    }

    fn next(&self) -> Option<Instant> {
        lock(&self.polled).values().map(|polled| polled.at).min()
    }

    /// Those that are due, by their locks. Each is due again later by twice as much.
    fn due(&self, now: Instant) -> Vec<Look> {
        let mut due: HashMap<LockKey, Vec<Owner>> = HashMap::new();
        for (owner, polled) in &mut *lock(&self.polled) {
            if polled.at <= now {
                polled.pause = (polled.pause * 2).min(LOOK_EVERY);
                polled.at = now + polled.pause;
                due.entry(polled.key.clone()).or_default().push(*owner);
            }
        }
        let due = due.into_iter();
        due.map(|(key, owners)| Look { key, owners }).collect()
    }
}

/// Looks for what is waited for, and tells what it finds as if the server had said it.
pub(super) async fn keep(node: Weak<Node>, polls: Arc<Polls>) {
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
    let LookReply::Seen {
        occupant: Some(occupant),
        ..
    } = reply
    else {
        return;
    };
    if let Some(owner) = occupant.ours
        && look.owners.contains(&owner)
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

/// The same as one look at all of these, with a command for each.
pub(super) async fn look(
    node: &Arc<Node>,
    looks: &[Look],
    within: Duration,
) -> Result<Vec<LookReply>, Trouble> {
    let replies = each(looks, |look| {
        let (node, look) = (node.clone(), look.clone());
        async move { node.look(&[look], within).await }
    });
    let mut all = Vec::with_capacity(looks.len());
    for reply in replies.await {
        match reply {
            Ok(Ok(replies)) => all.extend(replies),
            Ok(Err(trouble)) if looks.len() == 1 => return Err(trouble),
            Ok(Err(trouble)) => all.push(LookReply::Failed(trouble)),
            Err(ended) => all.push(LookReply::Failed(trouble_of(&ended))),
        }
    }
    Ok(all)
}

/// The same as one renewal of all of these, with a command for each.
pub(super) async fn renew(
    node: &Arc<Node>,
    batch: &[Renewal],
    within: Duration,
) -> Result<Renewed, Trouble> {
    // Before any of them is sent.
    let sent = node.shared.clock.now();
    let replies = each(batch, |renewal| {
        let (node, renewal) = (node.clone(), renewal.clone());
        async move { node.renew(&[renewal], within).await }
    });
    let mut failures = Vec::new();
    for (index, reply) in replies.await.into_iter().enumerate() {
        match reply {
            Ok(Ok(renewed)) => {
                let failed = renewed.failures.into_iter();
                failures.extend(failed.map(|(_, failure)| (index, failure)));
            }
            Ok(Err(trouble)) if batch.len() == 1 => return Err(trouble),
            Ok(Err(trouble)) => failures.push((index, RenewalFailure::Trouble(trouble))),
            Err(ended) => failures.push((index, RenewalFailure::Trouble(trouble_of(&ended)))),
        }
    }
    Ok(Renewed { sent, failures })
}

/// Does something for each, many at once; the outcomes are in the order of the items.
async fn each<T, F, Fut>(items: &[T], work: F) -> Vec<Result<Fut::Output, JoinError>>
where
    F: Fn(&T) -> Fut,
    Fut: Future + Send + 'static,
    Fut::Output: Send + 'static,
{
    let mut outcomes = Vec::with_capacity(items.len());
    for some in items.chunks(AT_ONCE) {
        let mut working = JoinSet::new();
        let mut ids = Vec::with_capacity(some.len());
        for item in some {
            ids.push(working.spawn(work(item)).id());
        }
        let mut ended = HashMap::new();
        while let Some(outcome) = working.join_next_with_id().await {
            match outcome {
                Ok((id, output)) => ended.insert(id, Ok(output)),
                Err(error) => ended.insert(error.id(), Err(error)),
            };
        }
        outcomes.extend(ids.iter().filter_map(|id| ended.remove(id)));
    }
    outcomes
}

fn trouble_of(ended: &JoinError) -> Trouble {
    Trouble::new(crate::error::Outage::Other, ended.to_string())
}
