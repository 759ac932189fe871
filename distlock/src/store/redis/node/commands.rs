//! Batches: one command, or behind a proxy one for each lock.

use std::time::Duration;

use crate::protocol::messages::{CheckQueue, CheckQueueReply, RenewReply, Renewal};
use crate::store::StoreResult;
use crate::store::redis::node::{Node, fan_out};

impl Node {
    pub(crate) async fn renew(
        &self,
        batch: &[Renewal],
        timeout: Duration,
    ) -> StoreResult<RenewReply> {
        if batch.len() == 1 || !self.renewals.session()?.is_proxied {
            return self.run(batch, timeout).await;
        }
        let clock = &*self.shared.client.clock;
        fan_out::renew(clock, batch, |one| Box::pin(self.run(one, timeout))).await
    }

    pub(crate) async fn check_queues(
        &self,
        checks: &[CheckQueue],
        timeout: Duration,
    ) -> StoreResult<Vec<CheckQueueReply>> {
        if checks.len() == 1 || !self.commands.session()?.is_proxied {
            return self.run(checks, timeout).await;
        }
        fan_out::check_queues(checks, |one| Box::pin(self.run(one, timeout))).await
    }
}
