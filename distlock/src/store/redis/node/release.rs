//! Releases and downgrades. A release is sent once if it is certain to be last, and again if an
//! acquire may still be applied after it.

use std::time::Duration;

use crate::protocol::messages::{OwnerNumber, Proof, ReleaseReply};
use crate::protocol::store_error::StoreError;
use crate::store::command::{Downgrade, Release};
use crate::store::redis::conn::server_time;
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::Node;
use crate::store::redis::node::chosen_connection::ChosenConnection;
use crate::store::redis::node::runtime_connection::RuntimeConnectionId;
use crate::store::redis::node::unanswered::Unanswered;
use crate::store::redis::wire::call::ScriptCall;
use crate::store::redis::wire::commands::ReleaseEffect;
use crate::store::redis::wire::errors;

impl Node {
    /// Releases all entries of an owner here, after its acquires. Where a runtime connection left
    /// one unanswered, it also sends the release there, or kills that connection (R2).
    pub(crate) async fn release(
        &self,
        owner: OwnerNumber,
        release: &impl ScriptCall<Reply = ReleaseEffect>,
        timeout: Duration,
    ) -> Result<ReleaseReply, StoreError> {
        let command_connection = self.choose_command_connection()?;
        let mut unanswered = self.unanswered.get(owner).unwrap_or_default();
        if !self.shared.client.rules.release_in_order {
            unanswered.runtime_connections.clear();
        }
        let mut effect = ReleaseEffect::default();
        let mut may_be_applied = unanswered.generation.is_some_and(|generation| {
            generation != command_connection.session.generation
                && command_connection.session.predecessor_may_be_alive
        });
        for id in &unanswered.runtime_connections {
            let mut is_released = false;
            if let Some(runtime_connection) = self.runtime_connections.find(id.number) {
                let chosen = ChosenConnection {
                    runtime_connection: Some(runtime_connection),
                    ..ChosenConnection::new(command_connection.session.clone())
                };
                match self.send_release(&chosen, release, timeout).await {
                    Ok(released) => {
                        effect = effect.and(released);
                        is_released = true;
                    }
                    // It may have been applied, so a lock that is now missing proves nothing.
                    Err(error) => effect.was_held |= !error.unsent,
                }
            }
            if !is_released {
                self.runtime_connections.retire(id.number);
                may_be_applied |= !self.kill(id, &command_connection.session, timeout).await?;
            }
        }
        let released = self.send_release(&command_connection, release, timeout);
        effect = effect.and(released.await?);
        self.unanswered.forget(owner);
        self.check_schedule.remove(owner);
        let repeat_after = may_be_applied.then(|| self.time_until_rejected(&unanswered, timeout));
        Ok(effect.reply(repeat_after))
    }

    /// Returns the delay after which a release certainly follows the unanswered acquires.
    fn time_until_rejected(&self, unanswered: &Unanswered, timeout: Duration) -> Duration {
        let now = self
            .shared
            .server_time
            .upper_bound(self.shared.client.clock.now());
        let now = now.unwrap_or(server_time::UNKNOWN);
        Duration::from_micros(unanswered.apply_by.saturating_sub(now)) + timeout
    }

    /// Returns true if an acquire of this owner never got a reply.
    pub(crate) fn has_unanswered(&self, owner: OwnerNumber) -> bool {
        self.unanswered.get(owner).is_some()
    }

    /// Forgets an acquire that never got a reply here, and is released on another node. Returns
    /// the delay before the next release, because the acquire may still be applied.
    pub(crate) fn forget_unanswered(
        &self,
        owner: OwnerNumber,
        timeout: Duration,
    ) -> Option<Duration> {
        let unanswered = self.unanswered.get(owner)?;
        self.unanswered.forget(owner);
        Some(self.time_until_rejected(&unanswered, timeout))
    }

    /// Releases an owner that has no unanswered acquire. Returns `None` if it has one, because the
    /// I/O thread then has to release it.
    pub(crate) async fn release_if_answered(
        &self,
        chosen: &ChosenConnection,
        release: &Release<'_>,
        timeout: Duration,
    ) -> Option<Result<ReleaseReply, StoreError>> {
        if self.unanswered.get(release.owner).is_some() {
            return None;
        }
        let released = self.send_release(chosen, release, timeout).await;
        Some(released.map(|effect| effect.reply(None)))
    }

    /// Downgrades a write hold, and repeats that while it lets further waiters in.
    pub(crate) async fn downgrade(
        &self,
        downgrade: &Downgrade<'_>,
        timeout: Duration,
    ) -> Result<Option<Proof>, StoreError> {
        let give_up_at = self.shared.client.clock.now() + timeout;
        loop {
            let done = self.run(None, downgrade, timeout).await?;
            if !done.has_more || self.shared.client.clock.now() >= give_up_at {
                return Ok(done.proof);
            }
        }
    }

    /// Ensures that no further command from a runtime connection is applied. Returns `false` if one
    /// still may be.
    async fn kill(
        &self,
        id: &RuntimeConnectionId,
        session: &Session,
        timeout: Duration,
    ) -> Result<bool, StoreError> {
        match tokio::time::timeout(timeout, id.kill(session)).await {
            Ok(killed) => killed,
            Err(_) => {
                self.commands.check_liveness(timeout);
                Err(StoreError::timed_out(timeout))
            }
        }
    }

    /// Sends a release until it has reached a live waiter.
    async fn send_release(
        &self,
        chosen: &ChosenConnection,
        release: &impl ScriptCall<Reply = ReleaseEffect>,
        timeout: Duration,
    ) -> Result<ReleaseEffect, StoreError> {
        let give_up_at = self.shared.client.clock.now() + timeout;
        let mut effect = ReleaseEffect::default();
        loop {
            let removed = match self.run_on(chosen, release, timeout).await {
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
