//! The commands to one node of a quorum, and their replies (see `lua/quorum/README.md`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};

use crate::protocol::messages::HolderView;
use crate::protocol::store_error::StoreError;
use crate::store::redis::node::Node;
use crate::store::redis::quorum::attempt::{Attempt, Token};
use crate::store::redis::quorum::config::QuorumConfig;
use crate::store::redis::wire::call::{Decoded, ScriptCall, ScriptContext};
use crate::store::redis::wire::decode;
use crate::store::redis::wire::encode::millis;
use crate::store::redis::wire::errors;
use crate::store::redis::wire::names::KeyKind;
use crate::store::redis::wire::reply::{self, ReplyReader};
use crate::store::redis::wire::scripts::{ScriptId, ScriptRef};

/// Why a node has not granted the lock.
#[derive(Clone, Debug)]
pub(super) enum Refusal {
    /// Another owner has the lock there.
    Taken(HolderView),
    KeyConflict(String),
    /// The remaining time in which the node grants nothing.
    Quarantine(Duration),
    /// The attempt's lock has ended there, or has a larger token than the hold would have.
    Outdated,
    Failed(StoreError),
}

/// A node's grant of the lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) token: Token,
    /// Set if other clients have asked for the lock since it was last granted.
    pub(super) is_contended: bool,
}

/// What a node is to do for an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// Takes the lock, if it is free there.
    Acquire,
    /// Gives the attempt's lock the token of the whole hold.
    Confirm(Token),
    /// Does the same for a hold that the node may have lost: also takes the lock if it is free.
    Repair(Token),
}

/// A command that stores a lock on a node.
pub(super) struct NodeCommand<'a> {
    pub(super) attempt: &'a Attempt,
    pub(super) action: Action,
    pub(super) config: &'a QuorumConfig,
}

impl NodeCommand<'_> {
    /// Runs the command on a node, after the attempt's command before. Returns `None`, and sends
    /// nothing, once the attempt is being released.
    pub(super) async fn run(
        &self,
        (index, node): (usize, &Node),
        timeout: Duration,
    ) -> Option<Result<Result<Granted, Refusal>, StoreError>> {
        let mut traces = self.attempt.nodes[index].lock().await;
        if self.attempt.is_released.load(Ordering::Acquire) {
            return None;
        }
        let before = *traces;
        (traces.may_be_stored, traces.was_unanswered) = (true, true);
        let reply = node.run(self, timeout).await;
        match (self.action, &reply) {
            (_, Err(error)) if error.unsent => *traces = before,
            (_, Err(error)) if error.is_unanswered() => {}
            (Action::Acquire, Ok(Err(Refusal::Taken(_) | Refusal::Quarantine(_)))) => {
                *traces = before;
            }
            _ => traces.was_unanswered = before.was_unanswered,
        }
        Some(reply.map_err(|error| error.at(node.address())))
    }
}

impl ScriptCall for NodeCommand<'_> {
    type Reply = Result<Granted, Refusal>;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let (attempt, config) = (self.attempt, self.config);
        let (action, token) = match self.action {
            Action::Acquire => ("acquire", attempt.floor),
            Action::Confirm(token) => ("confirm", token),
            Action::Repair(token) => ("repair", token),
        };
        let mut cmd = context.script(ScriptId::Acquire, script_ref);
        cmd.arg(3);
        let kinds = [KeyKind::Lock, KeyKind::Fence];
        context.names.append(&mut cmd, &attempt.key, &kinds);
        cmd.arg(&context.names.epoch)
            .arg(context.owner(attempt.owner))
            .arg(millis(attempt.timing.ttl()))
            .arg(context.apply_by())
            .arg(millis(context.settings.fence_ttl))
            .arg(&*context.holder_name(attempt.metadata.as_deref()))
            .arg(token)
            .arg(millis(config.quarantine()))
            .arg(config.run_id(context))
            .arg(attempt.floor)
            .arg(action);
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<Self::Reply> {
        let mut reply = ReplyReader::from_list(reply)?;
        let (status, at) = (reply.int()?, reply.int()?);
        let conflict = || Refusal::KeyConflict(errors::CONFLICT.to_owned());
        let refusal = match (status, self.action) {
            (1, _) => {
                let token = reply.token()?.get();
                let is_contended = reply.int()? == 1;
                let granted = Granted {
                    token,
                    is_contended,
                };
                return Ok((Some(at), Ok(granted)));
            }
            (3, Action::Acquire) => {
                let value = reply.text()?;
                let holder = context.decode_holder(&value, decode::kept_until(at, &mut reply)?);
                holder.map_or_else(conflict, Refusal::Taken)
            }
            (3, _) => Refusal::Outdated,
            (4, _) => {
                let timeout = self.attempt.timing.command_timeout();
                Refusal::Failed(StoreError::timed_out(timeout))
            }
            (5, _) => conflict(),
            (7, _) => Refusal::Quarantine(Duration::from_micros(reply.int()?.saturating_sub(at))),
            (other, _) => return Err(reply::unknown_status(other, "an acquire")),
        };
        Ok((Some(at), Err(refusal)))
    }

    fn conflict_reply(&self, _: &ScriptContext<'_>, error_text: &str) -> Option<Self::Reply> {
        Some(Err(Refusal::KeyConflict(error_text.to_owned())))
    }
}

/// The result of renewing a hold on a node.
#[derive(Clone, Debug)]
pub(super) enum NodeRenewal {
    Held,
    /// The lock is free there, or has a smaller token of this hold, so the hold may be repaired.
    Repairable,
    NotOurs,
    Revoked,
    Error(StoreError),
}

/// Extends holds on a node. The reply has the result of each hold, in the same order.
pub(super) struct RenewOnNode<'a> {
    pub(super) holds: &'a [(std::sync::Arc<Attempt>, Token)],
    /// A time that some node has reached (server µs).
    pub(super) newest: u64,
    pub(super) config: &'a QuorumConfig,
}

impl ScriptCall for RenewOnNode<'_> {
    type Reply = Vec<NodeRenewal>;

    const RENEWS: bool = true;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let mut cmd = context.script(ScriptId::Renew, script_ref);
        cmd.arg(self.holds.len() + 1).arg(&context.names.epoch);
        for (attempt, _) in self.holds {
            cmd.arg(context.names.lock(&attempt.key));
        }
        cmd.arg(self.config.run_id(context))
            .arg(millis(self.config.quarantine()))
            .arg(self.newest);
        for (attempt, token) in self.holds {
            cmd.arg(context.owner(attempt.owner))
                .arg(*token)
                .arg(millis(attempt.timing.ttl()));
        }
        cmd
    }

    fn decode(&self, _: &ScriptContext<'_>, reply: Value) -> Decoded<Vec<NodeRenewal>> {
        let mut results = vec![NodeRenewal::Held; self.holds.len()];
        let mut reply = ReplyReader::from_list(reply)?;
        while let Some(failure) = reply.next() {
            let mut failure = ReplyReader::from_list(failure)?;
            let result = results.get_mut(failure.index()?);
            let result =
                result.ok_or_else(|| reply::malformed("a renewal index that is out of range"))?;
            *result = match &*failure.text()? {
                "" => NodeRenewal::NotOurs,
                "REPAIR" => NodeRenewal::Repairable,
                "REVOKED" => NodeRenewal::Revoked,
                error => NodeRenewal::Error(errors::classify_text(error)),
            };
        }
        Ok((None, results))
    }
}
