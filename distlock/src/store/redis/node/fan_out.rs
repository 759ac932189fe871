//! Queue checks and renewals of many locks, in parts with one command each. A command must not
//! combine keys of two locks that may be stored in different places.

use futures_util::stream::{self, StreamExt};

use crate::protocol::messages::{CheckQueue, CheckQueueReply, RenewReply, Renewal, RenewalFailure};
use crate::store::{BoxFuture, StoreResult};
use crate::util::clock::Clock;

/// Upper limit of the commands in flight.
const MAX_PARTS_IN_FLIGHT: usize = 256;

type PendingReply<'a, T> = BoxFuture<'a, StoreResult<T>>;

/// Runs renewals.
pub(crate) async fn renew<'a>(
    clock: &dyn Clock,
    parts: Vec<&'a [Renewal<'a>]>,
    send: impl Fn(&'a [Renewal<'a>]) -> PendingReply<'a, RenewReply>,
) -> StoreResult<RenewReply> {
    let sent_at = clock.now();
    let replies = run_all(parts.iter().map(|part| send(part)).collect()).await?;
    let (mut failures, mut first) = (Vec::new(), 0);
    for (part, reply) in parts.iter().zip(replies) {
        match reply {
            Ok(renewed) => {
                let failed = renewed.failures.into_iter();
                failures.extend(failed.map(|(index, failure)| (first + index, failure)));
            }
            Err(error) => failures.extend(
                (first..first + part.len())
                    .map(|index| (index, RenewalFailure::Error(error.clone()))),
            ),
        }
        first += part.len();
    }
    Ok(RenewReply { sent_at, failures })
}

/// Runs queue checks.
pub(crate) async fn check_queues<'a>(
    parts: impl Iterator<Item = &'a [CheckQueue]>,
    send: impl Fn(&'a [CheckQueue]) -> PendingReply<'a, Vec<CheckQueueReply>>,
) -> StoreResult<Vec<CheckQueueReply>> {
    let parts: Vec<_> = parts.collect();
    let replies = run_all(parts.iter().map(|part| send(part)).collect()).await?;
    let each = parts.iter().zip(replies).map(|(part, reply)| {
        reply.unwrap_or_else(|error| vec![CheckQueueReply::Failed(error); part.len()])
    });
    Ok(each.flatten().collect())
}

/// Runs commands, and returns the reply to each. Fails if there is only one, and it fails.
async fn run_all<T>(commands: Vec<PendingReply<'_, T>>) -> StoreResult<Vec<StoreResult<T>>> {
    let replies = stream::iter(commands).buffered(MAX_PARTS_IN_FLIGHT);
    let mut replies: Vec<_> = replies.collect().await;
    match replies.pop() {
        Some(Err(error)) if replies.is_empty() => Err(error),
        last => {
            replies.extend(last);
            Ok(replies)
        }
    }
}
