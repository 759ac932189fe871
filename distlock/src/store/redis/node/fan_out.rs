//! Queue checks and renewals of many locks, with one command per lock. A command must not combine
//! keys of two locks that may be stored in different places.

use futures_util::stream::{self, StreamExt};

use crate::protocol::messages::{CheckQueue, CheckQueueReply, RenewReply, Renewal, RenewalFailure};
use crate::protocol::store_error::StoreError;
use crate::store::BoxFuture;
use crate::util::clock::Clock;

/// Upper limit of the commands in flight.
const MAX_IN_FLIGHT: usize = 256;

/// Runs the queue checks of several locks.
pub(crate) async fn check_queues<'a>(
    checks: &'a [CheckQueue],
    check: impl FnMut(&'a CheckQueue) -> BoxFuture<'a, Result<Vec<CheckQueueReply>, StoreError>>,
) -> Result<Vec<CheckQueueReply>, StoreError> {
    let replies = run_all(checks.iter().map(check).collect()).await?;
    let replies = replies.into_iter();
    let each =
        replies.map(|reply| reply.unwrap_or_else(|error| vec![CheckQueueReply::Failed(error)]));
    Ok(each.flatten().collect())
}

/// Runs the renewals of several holds.
pub(crate) async fn renew<'a>(
    clock: &dyn Clock,
    batch: &'a [Renewal],
    renew: impl FnMut(&'a Renewal) -> BoxFuture<'a, Result<RenewReply, StoreError>>,
) -> Result<RenewReply, StoreError> {
    let sent_at = clock.now();
    let replies = run_all(batch.iter().map(renew).collect()).await?;
    let mut failures = Vec::new();
    for (index, reply) in replies.into_iter().enumerate() {
        match reply {
            Ok(renewed) => {
                let failed = renewed.failures.into_iter();
                failures.extend(failed.map(|(_, failure)| (index, failure)));
            }
            Err(error) => failures.push((index, RenewalFailure::Error(error))),
        }
    }
    Ok(RenewReply { sent_at, failures })
}

/// Runs commands, and returns the reply to each. Fails if there is only one, and it fails.
async fn run_all<T>(
    commands: Vec<BoxFuture<'_, Result<T, StoreError>>>,
) -> Result<Vec<Result<T, StoreError>>, StoreError> {
    let replies = stream::iter(commands).buffered(MAX_IN_FLIGHT);
    let mut replies: Vec<_> = replies.collect().await;
    match replies.pop() {
        Some(Err(error)) if replies.is_empty() => Err(error),
        last => {
            replies.extend(last);
            Ok(replies)
        }
    }
}
