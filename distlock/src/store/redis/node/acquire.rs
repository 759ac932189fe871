//! Acquires: of one lock, also with the acknowledgments of replicas and disks, and of several.

use std::slice::from_ref;
use std::time::Duration;

use redis::Cmd;

use crate::error::Outage;
use crate::protocol::messages::Confirm;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, Confirmation, Proof,
};
use crate::protocol::store_error::StoreError;
use crate::store::BoxFuture;
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::Node;
use crate::store::redis::wire::scripts::ScriptForm;

/// Upper limit of the queue checks that remove the dead waiters of another kind, each up to 100.
const MAX_KIND_CHECKS: usize = 100;

impl Node {
    /// Finds out why an acquire met values of another type. A queue check as the other kind removes
    /// dead holders and waiters. If that leaves nothing, the acquire is repeated.
    pub(crate) fn resolve_conflict<'a>(
        &'a self,
        session: &'a Session,
        preceding: Option<&'a Cmd>,
        request: &'a Acquire<'a>,
        mut detail: String,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<AcquireReply, StoreError>> {
        Box::pin(async move {
            let check = CheckQueue {
                key: request.target.key.clone(),
                kind: ScriptForm::of(request.target.kind.lock_kind(), false).other_kind(),
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
                match self.send(session, preceding, request, timeout).await? {
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
        request: &Acquire<'_>,
        timeout: Duration,
    ) -> Result<AcquireReply, StoreError> {
        let session = self.commands.session()?;
        // A proxy may have several servers behind it, and shares its connections to them among its
        // clients.
        if session.is_proxied && !request.target.durability.is_none() {
            let detail = "`min_replicas` and `fsync` do not work through a proxy that reads the commands; connect to \
                the server directly";
            return Err(StoreError::new(Outage::Unsupported, detail).mark_unsent());
        }
        let reply = self.acquire_on(&session, None, request, timeout).await?;
        self.await_acks(request, reply, timeout).await
    }

    /// Acquires several locks at once, if all are free. Returns `None` if they are not, or if the
    /// server is behind a proxy, which may distribute keys over several servers.
    pub(crate) async fn acquire_all(
        &self,
        requests: &[Acquire<'_>],
        timeout: Duration,
    ) -> Result<Option<Proof>, StoreError> {
        let session = self.commands.session()?;
        if session.is_proxied {
            return Ok(None);
        }
        self.send(&session, None, requests, timeout).await
    }

    /// If the request requires acknowledgments, confirms a granted lock on an ack connection and
    /// returns that proof. Until then only the store counts the lock as held. Returns any other
    /// `reply` unchanged.
    pub(crate) async fn await_acks(
        &self,
        request: &Acquire<'_>,
        reply: AcquireReply,
        timeout: Duration,
    ) -> Result<AcquireReply, StoreError> {
        if request.target.durability.is_none() || !matches!(reply, AcquireReply::Held(_)) {
            return Ok(reply);
        }
        let confirm = Confirm {
            target: request.target,
            once: request.once,
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
