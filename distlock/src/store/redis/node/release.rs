//! Releases and downgrades.

use std::time::Duration;

use crate::protocol::messages::{Proof, ReleaseReply};
use crate::protocol::store_error::StoreError;
use crate::store::command::{Downgrade, Release};
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::Node;
use crate::store::redis::wire::commands::ReleaseEffect;
use crate::store::redis::wire::errors;

impl Node {
    /// Releases all entries of an owner here. Its acquires that went unanswered may be applied
    /// later, so its release is then repeated after their apply deadlines (R2).
    pub(crate) async fn release(
        &self,
        release: &Release<'_>,
        timeout: Duration,
    ) -> Result<ReleaseReply, StoreError> {
        let session = self.commands.session()?;
        let reply = self.release_on(&session, release, timeout).await?;
        self.check_schedule.remove(release.owner);
        Ok(reply)
    }

    pub(crate) async fn release_on(
        &self,
        session: &Session,
        release: &Release<'_>,
        timeout: Duration,
    ) -> Result<ReleaseReply, StoreError> {
        let (client, server_time) = (&self.shared.client, &self.shared.server_time);
        let effect = self.send_release(session, release, timeout).await?;
        let repeat_after = (release.after_unanswered && client.rules.cancel_twice)
            .then(|| server_time.time_until_rejected(client.clock.now(), timeout));
        Ok(effect.reply(repeat_after))
    }

    /// Downgrades a write hold, and repeats that while it lets further waiters in.
    pub(crate) async fn downgrade(
        &self,
        downgrade: &Downgrade<'_>,
        timeout: Duration,
    ) -> Result<Option<Proof>, StoreError> {
        let give_up_at = self.shared.client.clock.now() + timeout;
        loop {
            let done = self.run(downgrade, timeout).await?;
            if !done.has_more || self.shared.client.clock.now() >= give_up_at {
                return Ok(done.proof);
            }
        }
    }

    /// Sends a release until it has reached a live waiter.
    async fn send_release(
        &self,
        session: &Session,
        release: &Release<'_>,
        timeout: Duration,
    ) -> Result<ReleaseEffect, StoreError> {
        let give_up_at = self.shared.client.clock.now() + timeout;
        let mut effect = ReleaseEffect::default();
        loop {
            let removed = match self.send(session, None, release, timeout).await {
                // The slot has moved. The rest is left to the next client that checks the queue.
                Err(error) if effect.was_held && errors::is_redirect(&error) => return Ok(effect),
                removed => removed?,
            };
            effect = effect.and(removed);
            // More dead waiters than one call removes before it reaches a live one. After the
            // timeout they are left to the next client that checks the queue.
            if !removed.has_more_dead || self.shared.client.clock.now() >= give_up_at {
                return Ok(effect);
            }
        }
    }
}
