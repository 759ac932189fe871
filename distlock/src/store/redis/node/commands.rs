//! Renewals and queue checks in batches, with one command for each script and, behind a proxy, for
//! each lock.

use std::time::Duration;

use crate::protocol::messages::{CheckQueue, CheckQueueReply, RenewReply, Renewal};
use crate::store::StoreResult;
use crate::store::redis::node::{Node, fan_out};
use crate::store::redis::wire::scripts::Form;

impl Node {
    pub(crate) async fn renew(
        &self,
        batch: &[Renewal],
        timeout: Duration,
    ) -> StoreResult<RenewReply> {
        let form = |renewal: &Renewal| Form::of(renewal.kind.lock_kind(), false);
        let parts: Vec<_> = if self
            .renewals
            .session()
            .is_ok_and(|session| session.is_proxied)
        {
            batch.chunks(1).collect()
        } else {
            (batch.chunk_by(|a, b| form(a) == form(b)))
                .flat_map(|alike| alike.chunks(form(&alike[0]).max_renewals()))
                .collect()
        };
        if let [whole] = parts[..] {
            return self.run(whole, timeout).await;
        }
        let clock = &*self.shared.client.clock;
        fan_out::renew(clock, parts, |part| Box::pin(self.run(part, timeout))).await
    }

    pub(crate) async fn check_queues(
        &self,
        checks: &[CheckQueue],
        timeout: Duration,
    ) -> StoreResult<Vec<CheckQueueReply>> {
        let form = |check: &CheckQueue| Form::of(check.kind, false);
        let is_proxied = self
            .commands
            .session()
            .is_ok_and(|session| session.is_proxied);
        let parts = checks.chunk_by(|a, b| !is_proxied && form(a) == form(b));
        fan_out::check_queues(parts, |part| Box::pin(self.run(part, timeout))).await
    }
}
