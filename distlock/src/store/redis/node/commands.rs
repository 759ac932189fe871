//! The commands of a store, on one server.

use std::time::Duration;

use redis::Cmd;

use crate::protocol::store_error::StoreError;
use crate::store::BoxFuture;
use crate::store::command::{Command, CommandReply};
use crate::store::redis::node::{Node, fan_out};

impl Node {
    /// Runs a command. `preceding` is sent in the same write as each script, except for those that
    /// acquire or hand off a lock.
    pub(crate) fn execute<'a>(
        &'a self,
        preceding: Option<&'a Cmd>,
        command: Command<'a>,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<CommandReply, StoreError>> {
        Box::pin(async move {
            let reply = self.try_execute(preceding, command, timeout).await;
            reply.map_err(|error| error.at(self.address()))
        })
    }

    async fn try_execute(
        &self,
        preceding: Option<&Cmd>,
        command: Command<'_>,
        timeout: Duration,
    ) -> Result<CommandReply, StoreError> {
        let execute = |_: &_, command| self.execute(preceding, command, timeout);
        Ok(match command {
            Command::Acquire(request) => {
                CommandReply::Acquired(self.acquire(&request, timeout).await?)
            }
            Command::AcquireAll(requests) => {
                CommandReply::AllAcquired(self.acquire_all(requests, timeout).await?)
            }
            Command::Confirm(confirm) => {
                let confirmed = self.run_after(preceding, &confirm, timeout).await?;
                self.check_schedule.remove(confirm.owner);
                CommandReply::Confirmed(confirmed)
            }
            Command::Renew(batch) if batch.len() != 1 && self.is_polling() => {
                let clock = &*self.shared.client.clock;
                Box::pin(fan_out::renew(clock, batch, execute)).await?
            }
            Command::Renew(batch) => {
                CommandReply::Renewed(self.run_after(preceding, batch, timeout).await?)
            }
            Command::Downgrade(downgrade) => {
                CommandReply::Downgraded(self.downgrade(&downgrade, timeout).await?)
            }
            Command::Release(release) => {
                CommandReply::Released(self.release(&release, timeout).await?)
            }
            Command::CheckQueue(checks) if checks.len() != 1 && self.is_polling() => {
                Box::pin(fan_out::check_queues(checks, execute)).await?
            }
            Command::CheckQueue(checks) => {
                CommandReply::QueueChecked(self.run_after(preceding, checks, timeout).await?)
            }
            Command::Inspect(inspect) => {
                let inspected = self.inspect(preceding, inspect, timeout).await?;
                CommandReply::Inspected(Box::new(inspected))
            }
            Command::List(list) => CommandReply::Listed(self.list(&list, timeout).await?),
            Command::Revoke(revoke) => CommandReply::Revoked(self.run(&revoke, timeout).await?),
            Command::DeleteRecord(delete) => {
                CommandReply::RecordDeleted(self.run_after(preceding, &delete, timeout).await?)
            }
        })
    }
}
