//! Queue checks and renewals of many locks, with one command per lock. A command must not combine
//! keys of two locks that may be stored in different places.

use std::slice::from_ref;

use futures_util::stream::{self, StreamExt};

use crate::key::LockKey;
use crate::protocol::messages::{CheckQueue, CheckQueueReply, RenewReply, Renewal, RenewalFailure};
use crate::protocol::store_error::StoreError;
use crate::store::command::{Command, CommandReply, StoreCommand};
use crate::store::{BoxFuture, read};
use crate::util::clock::Clock;

/// Upper limit of the commands in flight.
const MAX_IN_FLIGHT: usize = 256;

type Sending<'a> = BoxFuture<'a, Result<CommandReply, StoreError>>;

/// Runs renewals.
pub(crate) async fn renew<'a>(
    clock: &dyn Clock,
    batch: &'a [Renewal],
    send: impl Fn(&'a LockKey, Command<'a>) -> Sending<'a>,
) -> Result<CommandReply, StoreError> {
    let sent_at = clock.now();
    let each = batch.iter();
    let each = each.map(|renewal| send(&renewal.key, Command::Renew(from_ref(renewal))));
    let replies = run_all::<&[Renewal]>(each.collect()).await?;
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
    Ok(CommandReply::Renewed(RenewReply { sent_at, failures }))
}

/// Runs queue checks.
pub(crate) async fn check_queues<'a>(
    checks: &'a [CheckQueue],
    send: impl Fn(&'a LockKey, Command<'a>) -> Sending<'a>,
) -> Result<CommandReply, StoreError> {
    let each = checks.iter();
    let each = each.map(|check| send(&check.key, Command::CheckQueue(from_ref(check))));
    let replies = run_all::<&[CheckQueue]>(each.collect()).await?;
    let replies = replies.into_iter();
    let each =
        replies.map(|reply| reply.unwrap_or_else(|error| vec![CheckQueueReply::Failed(error)]));
    Ok(CommandReply::QueueChecked(each.flatten().collect()))
}

/// Runs commands, and returns the reply to each. Fails if there is only one, and it fails.
async fn run_all<C: StoreCommand>(
    commands: Vec<Sending<'_>>,
) -> Result<Vec<Result<C::Reply, StoreError>>, StoreError> {
    let replies = stream::iter(commands).buffered(MAX_IN_FLIGHT);
    let replies = replies.map(|reply| read::<C>(reply?));
    let mut replies: Vec<_> = replies.collect().await;
    match replies.pop() {
        Some(Err(error)) if replies.is_empty() => Err(error),
        last => {
            replies.extend(last);
            Ok(replies)
        }
    }
}
