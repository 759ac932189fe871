//! The commands to a node: renewals and queue checks in batches, with one command for each script
//! and, behind a proxy, for each lock; releases and downgrades, until a live waiter is reached.

use std::time::Duration;

use crate::protocol::messages::{
    CheckQueue, CheckQueueReply, Downgrade, Proof, Release, ReleaseReply, RenewReply, Renewal,
};
use crate::protocol::rules::rule;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::{Node, fan_out};
use crate::store::redis::wire::errors;
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

impl Node {
    pub(crate) async fn release(
        &self,
        release: &Release<'_>,
        timeout: Duration,
    ) -> Result<ReleaseReply, StoreError> {
        let session = self.commands.session()?;
        self.release_on(&session, release, timeout).await
    }

    /// Releases all entries of an owner here, until a live waiter is reached. Its acquires that
    /// went unanswered may be applied later, so its release is then repeated after their apply
    /// deadlines (R2).
    pub(crate) async fn release_on(
        &self,
        session: &Session,
        release: &Release<'_>,
        timeout: Duration,
    ) -> Result<ReleaseReply, StoreError> {
        let (client, server_clock) = (&self.shared.client, &self.shared.server_clock);
        let give_up_at = client.clock.now() + timeout;
        let mut released = ReleaseReply::default();
        loop {
            let (reply, has_more) = match self.send(session, None, release, timeout).await {
                // The slot has moved. The rest is left to the next client that checks the queue.
                Err(error) if released.was_held && errors::is_redirect(&error) => break,
                reply => reply?,
            };
            released.was_held |= reply.was_held;
            released.is_recorded |= reply.is_recorded;
            // More dead waiters than one call removes before it reaches a live one. After the
            // timeout they are left to the next client that checks the queue.
            if !has_more || client.clock.now() >= give_up_at {
                break;
            }
        }
        released.repeat_after = (release.unanswered_until.is_some() && rule!(cancel_twice))
            .then(|| server_clock.time_until_rejected(client.clock.now(), timeout));
        Ok(released)
    }

    /// Downgrades a write hold, and repeats that while it lets further waiters in.
    pub(crate) async fn downgrade(
        &self,
        downgrade: &Downgrade<'_>,
        timeout: Duration,
    ) -> Result<Option<Proof>, StoreError> {
        let give_up_at = self.shared.client.clock.now() + timeout;
        loop {
            let (proof, has_more) = self.run(downgrade, timeout).await?;
            if !has_more || self.shared.client.clock.now() >= give_up_at {
                return Ok(proof);
            }
        }
    }
}
