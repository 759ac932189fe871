//! Looks and renewals of many locks, with a command for each: no command may have keys of two that
//! need not be in one place.

use std::collections::HashMap;
use std::future::Future;

use tokio::task::{JoinError, JoinSet};

use crate::error::Outage;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Look, LookReply, Renewal, RenewalFailure, Renewed};
use crate::util::clock::Moment;

/// Commands that are under way together.
const AT_ONCE: usize = 256;

/// One look at all of these.
pub(crate) async fn look<F, Fut>(looks: &[Look], at: F) -> Result<Vec<LookReply>, Trouble>
where
    F: Fn(Look) -> Fut,
    Fut: Future<Output = Result<Vec<LookReply>, Trouble>> + Send + 'static,
{
    let mut all = Vec::with_capacity(looks.len());
    for reply in each(looks, at).await {
        match reply {
            Ok(mut replies) if replies.len() == 1 => all.append(&mut replies),
            Ok(_) => all.push(LookReply::Failed(Trouble::new(
                Outage::Other,
                "a look at one lock saw another number of them",
            ))),
            Err(trouble) if looks.len() == 1 => return Err(trouble),
            Err(trouble) => all.push(LookReply::Failed(trouble)),
        }
    }
    Ok(all)
}

/// One renewal of all of these. `now` is before any of them is sent.
pub(crate) async fn renew<F, Fut>(
    batch: &[Renewal],
    now: Moment,
    renew: F,
) -> Result<Renewed, Trouble>
where
    F: Fn(Renewal) -> Fut,
    Fut: Future<Output = Result<Renewed, Trouble>> + Send + 'static,
{
    let mut failures = Vec::new();
    for (index, reply) in each(batch, renew).await.into_iter().enumerate() {
        match reply {
            Ok(renewed) => {
                let failed = renewed.failures.into_iter();
                failures.extend(failed.map(|(_, failure)| (index, failure)));
            }
            Err(trouble) if batch.len() == 1 => return Err(trouble),
            Err(trouble) => failures.push((index, RenewalFailure::Trouble(trouble))),
        }
    }
    Ok(Renewed {
        sent: now,
        failures,
    })
}

/// Does something for each; the outcomes are in the order of the items.
async fn each<T, R, F, Fut>(items: &[T], work: F) -> Vec<Result<R, Trouble>>
where
    T: Clone,
    R: Send + 'static,
    F: Fn(T) -> Fut,
    Fut: Future<Output = Result<R, Trouble>> + Send + 'static,
{
    let mut outcomes = Vec::with_capacity(items.len());
    for some in items.chunks(AT_ONCE) {
        let mut working = JoinSet::new();
        let spawned = some
            .iter()
            .cloned()
            .map(|item| working.spawn(work(item)).id());
        let ids: Vec<_> = spawned.collect();
        let mut ended = HashMap::new();
        while let Some(outcome) = working.join_next_with_id().await {
            match outcome {
                Ok((id, outcome)) => ended.insert(id, outcome),
                Err(error) => ended.insert(error.id(), Err(not_done(&error))),
            };
        }
        outcomes.extend(ids.iter().filter_map(|id| ended.remove(id)));
    }
    outcomes
}

/// The runtime is being dropped, or there is a fault of ours.
fn not_done(error: &JoinError) -> Trouble {
    Trouble::new(Outage::Other, error.to_string())
}
