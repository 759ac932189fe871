//! The commands to a node: acquires, also with the acknowledgments of replicas and disks; renewals
//! and queue checks in batches, with one command for each script and, behind a proxy, for each lock;
//! releases and downgrades, until a live waiter is reached.

use std::slice::from_ref;
use std::time::Duration;

use redis::Cmd;

use crate::error::Outage;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, Confirm, Confirmation, Downgrade, Proof,
    Release, ReleaseReply, RenewReply, Renewal,
};
use crate::protocol::rules::rule;
use crate::protocol::store_error::StoreError;
use crate::store::availability::OutageCause;
use crate::store::redis::conn::session::{Purpose, Session};
use crate::store::redis::node::{Node, fan_out};
use crate::store::redis::wire::errors;
use crate::store::redis::wire::scripts::ScriptForm;
use crate::store::{BoxFuture, StoreResult};

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
            batch
                .chunk_by(|a, b| form(a) == form(b))
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

    pub(crate) async fn release(
        &self,
        release: &Release<'_>,
        timeout: Duration,
    ) -> StoreResult<ReleaseReply> {
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
    ) -> StoreResult<ReleaseReply> {
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
    ) -> StoreResult<Option<Proof>> {
        let give_up_at = self.shared.client.clock.now() + timeout;
        loop {
            let (proof, has_more) = self.run(downgrade, timeout).await?;
            if !has_more || self.shared.client.clock.now() >= give_up_at {
                return Ok(proof);
            }
        }
    }
}

/// Upper limit of the queue checks that remove the dead waiters of another kind, each up to 100.
const MAX_KIND_CHECKS: usize = 100;

impl Node {
    /// Acquires over a connection, on which `preceding` is sent in the same write.
    pub(crate) async fn acquire_on(
        &self,
        session: &Session,
        preceding: Option<&Cmd>,
        acquire: &Acquire<'_>,
        timeout: Duration,
    ) -> StoreResult<AcquireReply> {
        let mut reply = self.send(session, preceding, acquire, timeout).await;
        if let Ok(AcquireReply::KeyConflict(detail)) = reply {
            reply = match session.purpose {
                // The I/O thread acquires again, because that takes several commands and timers.
                Purpose::Runtime => return Ok(AcquireReply::Unfinished),
                _ => {
                    let resolved =
                        self.resolve_conflict(session, preceding, acquire, detail, timeout);
                    resolved.await
                }
            };
        }
        let reply = reply.inspect_err(|error| {
            // Reports a server that replies but refuses.
            if error.outage.is_rejection() && !errors::is_redirect(error) {
                self.availability.report(OutageCause::Rejecting, error);
            }
        })?;
        // The server has written for this acquire, so it no longer refuses.
        if reply.left_state() {
            self.availability.clear(OutageCause::Rejecting);
        }
        Ok(reply)
    }

    /// Finds out why an acquire met values of another type. A queue check as the other kind removes
    /// dead holders and waiters. If that leaves nothing, the acquire is repeated.
    pub(crate) fn resolve_conflict<'a>(
        &'a self,
        session: &'a Session,
        preceding: Option<&'a Cmd>,
        acquire: &'a Acquire<'a>,
        mut detail: String,
        timeout: Duration,
    ) -> BoxFuture<'a, StoreResult<AcquireReply>> {
        Box::pin(async move {
            let check = CheckQueue {
                key: acquire.target.key.clone(),
                kind: ScriptForm::of(acquire.target.kind.lock_kind(), false).other_kind(),
                owners: Vec::new(),
            };
            let give_up_at = self.shared.client.clock.now() + timeout;
            for _ in 0..MAX_KIND_CHECKS {
                if self.shared.client.clock.now() >= give_up_at {
                    return Err(StoreError::timed_out(timeout));
                }
                let mut replies = self.run(from_ref(&check), timeout).await?;
                match replies.pop() {
                    Some(CheckQueueReply::Checked {
                        kind: Some(existing),
                        holders,
                        ..
                    }) => return Ok(AcquireReply::WrongKind { existing, holders }),
                    Some(CheckQueueReply::Checked { kind: None, .. }) => {}
                    Some(CheckQueueReply::Failed(error)) if error.outage != Outage::Denied => {
                        return Err(error);
                    }
                    // Neither kind, or the user may not run the other kind's scripts.
                    Some(CheckQueueReply::Failed(_) | CheckQueueReply::KeyConflict(_)) | None => {
                        break;
                    }
                }
                match self.send(session, preceding, acquire, timeout).await? {
                    AcquireReply::KeyConflict(repeated) => detail = repeated,
                    reply => return Ok(reply),
                }
            }
            Ok(AcquireReply::KeyConflict(detail))
        })
    }

    /// Acquires on the command connection, and waits for the required acknowledgments.
    pub(crate) async fn acquire(
        &self,
        acquire: &Acquire<'_>,
        timeout: Duration,
    ) -> StoreResult<AcquireReply> {
        let session = self.commands.session()?;
        // A proxy may have several servers behind it, and shares its connections to them among its
        // clients.
        if session.is_proxied && !acquire.target.durability.is_none() {
            let detail = "`min_replicas` and `fsync` do not work through a proxy that reads the commands; connect to \
                the server directly";
            return Err(StoreError::new(Outage::Unsupported, detail).mark_unsent());
        }
        let reply = self.acquire_on(&session, None, acquire, timeout).await?;
        self.await_acks(acquire, reply, timeout).await
    }

    /// Acquires several locks at once, if all are free. Returns `None` if they are not, or if the
    /// server is behind a proxy, which may distribute keys over several servers.
    pub(crate) async fn acquire_all(
        &self,
        acquires: &[Acquire<'_>],
        timeout: Duration,
    ) -> StoreResult<Option<Proof>> {
        let session = self.commands.session()?;
        if session.is_proxied {
            return Ok(None);
        }
        self.send(&session, None, acquires, timeout).await
    }

    /// If the acquire requires acknowledgments, confirms a granted lock on an ack connection and
    /// returns that proof. Until then only the store counts the lock as held. Returns any other
    /// `reply` unchanged.
    pub(crate) async fn await_acks(
        &self,
        acquire: &Acquire<'_>,
        reply: AcquireReply,
        timeout: Duration,
    ) -> StoreResult<AcquireReply> {
        if acquire.target.durability.is_none() || !matches!(reply, AcquireReply::Held(_)) {
            return Ok(reply);
        }
        let confirm = Confirm {
            target: acquire.target,
            once: acquire.once,
        };
        match self.run(&confirm, timeout).await {
            Ok(Confirmation::Held(proof)) => Ok(AcquireReply::Held(proof)),
            // The owner asks again, and releases what it has.
            Ok(Confirmation::NotHeld | Confirmation::AlreadyRan(_)) => Err(StoreError::new(
                Outage::Other,
                "the lock was gone before its replicas acknowledged it",
            )),
            // The acquire was sent.
            Err(error) => Err(error.mark_sent()),
        }
    }
}
