//! Queue checks and renewals of many locks, with one command per lock. A command must not combine
//! keys of two locks that may be stored in different places.

use futures_util::stream::{self, StreamExt};

use crate::protocol::messages::{CheckQueueReply, RenewReply, RenewalFailure};
use crate::protocol::store_error::StoreError;
use crate::store::BoxFuture;
use crate::util::clock::BootInstant;

/// Upper limit of the commands in flight.
const MAX_IN_FLIGHT: usize = 256;

/// Runs the queue checks of several locks.
pub(crate) async fn check_queues(
    checks: Vec<BoxFuture<'_, Result<Vec<CheckQueueReply>, StoreError>>>,
) -> Result<Vec<CheckQueueReply>, StoreError> {
    let count = checks.len();
    let mut replies = stream::iter(checks).buffered(MAX_IN_FLIGHT);
    let mut all = Vec::with_capacity(count);
    while let Some(reply) = replies.next().await {
        match reply {
            Ok(reply) => all.extend(reply),
            Err(error) if count == 1 => return Err(error),
            Err(error) => all.push(CheckQueueReply::Failed(error)),
        }
    }
    Ok(all)
}

/// Runs the renewals of several holds. `now` is before any of them is sent.
pub(crate) async fn renew(
    now: BootInstant,
    renewals: Vec<BoxFuture<'_, Result<RenewReply, StoreError>>>,
) -> Result<RenewReply, StoreError> {
    let count = renewals.len();
    let mut replies = stream::iter(renewals).buffered(MAX_IN_FLIGHT).enumerate();
    let mut failures = Vec::new();
    while let Some((index, reply)) = replies.next().await {
        match reply {
            Ok(renewed) => {
                let failed = renewed.failures.into_iter();
                failures.extend(failed.map(|(_, failure)| (index, failure)));
            }
            Err(error) if count == 1 => return Err(error),
            Err(error) => failures.push((index, RenewalFailure::Error(error))),
        }
    }
    Ok(RenewReply {
        sent_at: now,
        failures,
    })
}
