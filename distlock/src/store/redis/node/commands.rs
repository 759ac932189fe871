//! Renewals and queue checks in batches, with one command for each script and, behind a proxy, for
//! each lock.

use std::time::Duration;

use crate::protocol::messages::{CheckQueue, CheckQueueReply, RenewReply, Renewal};
use crate::store::StoreResult;
use crate::store::redis::node::{Node, fan_out};
use crate::store::redis::wire::scripts::ScriptForm;

impl Node {
    pub(crate) async fn renew(
        &self,
        batch: &[Renewal<'_>],
        timeout: Duration,
    ) -> StoreResult<RenewReply> {
        let form = |renewal: &Renewal<'_>| ScriptForm::of(renewal.target.kind.lock_kind(), false);
        // Those with the same script together. The reply names the holds by their places in `batch`.
        let mut places: Vec<_> = (0..batch.len()).collect();
        places.sort_by_key(|place| form(&batch[*place]));
        let batch: Vec<_> = places.iter().map(|place| batch[*place]).collect();
        let session = self.renewals.session();
        let is_proxied = session.is_ok_and(|session| session.is_proxied);
        let parts: Vec<_> = if is_proxied {
            batch.chunks(1).collect()
        } else {
            (batch.chunk_by(|a, b| form(a) == form(b)))
                .flat_map(|alike| alike.chunks(form(&alike[0]).max_renewals()))
                .collect()
        };
        let clock = &*self.shared.client.clock;
        let mut reply = match parts[..] {
            [whole] => self.run(whole, timeout).await?,
            _ => fan_out::renew(clock, parts, |part| Box::pin(self.run(part, timeout))).await?,
        };
        for (place, _) in &mut reply.failures {
            *place = places[*place];
        }
        Ok(reply)
    }

    pub(crate) async fn check_queues(
        &self,
        checks: &[CheckQueue],
        timeout: Duration,
    ) -> StoreResult<Vec<CheckQueueReply>> {
        let form = |check: &CheckQueue| ScriptForm::of(check.kind, false);
        let is_proxied = self
            .commands
            .session()
            .is_ok_and(|session| session.is_proxied);
        let parts = checks.chunk_by(|a, b| !is_proxied && form(a) == form(b));
        fan_out::check_queues(parts, |part| Box::pin(self.run(part, timeout))).await
    }
}
