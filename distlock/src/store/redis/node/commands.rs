//! Commands that need more than their script. `preceding` is sent in the same write.

use std::time::Duration;

use redis::Cmd;

use crate::protocol::messages::{CheckQueue, CheckQueueReply, Confirmation, RenewReply, Renewal};
use crate::store::StoreResult;
use crate::store::command::Confirm;
use crate::store::redis::node::{Node, fan_out};

impl Node {
    pub(crate) async fn confirm(
        &self,
        preceding: Option<&Cmd>,
        confirm: &Confirm<'_>,
        timeout: Duration,
    ) -> StoreResult<Confirmation> {
        let confirmed = self.run_after(preceding, confirm, timeout).await?;
        self.check_schedule.remove(confirm.owner);
        Ok(confirmed)
    }

    /// Renews holds: behind a proxy with one command for each.
    pub(crate) async fn renew(
        &self,
        batch: &[Renewal],
        timeout: Duration,
    ) -> StoreResult<RenewReply> {
        if batch.len() == 1 || !self.is_polling() {
            return self.run(batch, timeout).await;
        }
        let clock = &*self.shared.client.clock;
        fan_out::renew(clock, batch, |one| Box::pin(self.run(one, timeout))).await
    }

    /// Checks queues, as `renew` renews holds.
    pub(crate) async fn check_queues(
        &self,
        checks: &[CheckQueue],
        timeout: Duration,
    ) -> StoreResult<Vec<CheckQueueReply>> {
        if checks.len() == 1 || !self.is_polling() {
            return self.run(checks, timeout).await;
        }
        fan_out::check_queues(checks, |one| Box::pin(self.run(one, timeout))).await
    }
}
