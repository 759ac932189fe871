//! Releases and downgrades.

use std::time::Duration;

use crate::protocol::messages::{Proof, ReleaseReply};
use crate::protocol::rules::rule;
use crate::protocol::store_error::StoreError;
use crate::store::command::{Downgrade, Release};
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::Node;
use crate::store::redis::wire::errors;

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
        released.repeat_after = (release.after_unanswered && rule!(cancel_twice))
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
