//! Queue checks and renewals of many locks, with one command per lock. A command must not combine
//! keys of two locks that may be stored in different places.

use std::slice::from_ref;

use futures_util::stream::{self, StreamExt};

use crate::protocol::messages::{CheckQueue, CheckQueueReply, RenewReply, Renewal, RenewalFailure};
use crate::store::{BoxFuture, StoreResult};
use crate::util::clock::Clock;

/// Upper limit of the commands in flight.
const MAX_IN_FLIGHT: usize = 256;

type Sending<'a, T> = BoxFuture<'a, StoreResult<T>>;

/// Runs renewals.
pub(crate) async fn renew<'a>(
    clock: &dyn Clock,
    batch: &'a [Renewal],
    send: impl Fn(&'a [Renewal]) -> Sending<'a, RenewReply>,
) -> StoreResult<RenewReply> {
    let sent_at = clock.now();
    let each = batch.iter().map(|renewal| send(from_ref(renewal)));
    let replies = run_all(each.collect()).await?;
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

/// Runs queue checks.
pub(crate) async fn check_queues<'a>(
    checks: &'a [CheckQueue],
    send: impl Fn(&'a [CheckQueue]) -> Sending<'a, Vec<CheckQueueReply>>,
) -> StoreResult<Vec<CheckQueueReply>> {
    let each = checks.iter().map(|check| send(from_ref(check)));
    let replies = run_all(each.collect()).await?;
    let replies = replies.into_iter();
    let each =
        replies.map(|reply| reply.unwrap_or_else(|error| vec![CheckQueueReply::Failed(error)]));
    Ok(each.flatten().collect())
}

/// Runs commands, and returns the reply to each. Fails if there is only one, and it fails.
async fn run_all<T>(commands: Vec<Sending<'_, T>>) -> StoreResult<Vec<StoreResult<T>>> {
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
