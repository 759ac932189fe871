//! The commands to one node of a quorum, and their replies (see `lua/quorum/README.md`).

use std::time::Duration;

use redis::{Cmd, Value};

use crate::config::quorum::Quorum as QuorumConfig;
use crate::protocol::messages::HolderView;
use crate::protocol::store_error::StoreError;
use crate::protocol::timing::Timing;
use crate::store::redis::quorum::attempt::{Attempt, QuorumHold, Token};
use crate::store::redis::wire::call::{Decoded, ScriptCall, ScriptContext};
use crate::store::redis::wire::decode::{self, ReplyReader};
use crate::store::redis::wire::encode::millis;
use crate::store::redis::wire::errors;
use crate::store::redis::wire::names::KeyKind;
use crate::store::redis::wire::scripts::{ScriptId, ScriptRef};
use crate::util::clock::ServerTime;

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
pub(super) enum VoteAction {
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
    pub(super) action: VoteAction,
    pub(super) config: &'a QuorumConfig,
}

impl ScriptCall for NodeCommand<'_> {
    type Reply = Result<Granted, Refusal>;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let (attempt, config) = (self.attempt, self.config);
        let (action, token) = match self.action {
            VoteAction::Acquire => ("acquire", attempt.floor),
            VoteAction::Confirm(token) => ("confirm", token),
            VoteAction::Repair(token) => ("repair", token),
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
            .arg(millis(quarantine(config)))
            .arg(run_id(config, context))
            .arg(attempt.floor)
            .arg(action);
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<Self::Reply> {
        let mut reply = ReplyReader::from_list(reply)?;
        let (status, at) = (reply.int()?, reply.time()?);
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
            (3, VoteAction::Acquire) => {
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
            (7, _) => Refusal::Quarantine(reply.time()?.since(at)),
            (other, _) => return Err(decode::unknown_status(other, "an acquire")),
        };
        Ok((Some(at), Err(refusal)))
    }

    fn conflict_reply(&self, _: &ScriptContext<'_>, error_text: &str) -> Option<Self::Reply> {
        Some(Err(Refusal::KeyConflict(error_text.to_owned())))
    }
}

/// Returns how long a node that may have lost data grants nothing.
fn quarantine(config: &QuorumConfig) -> Duration {
    Timing::new(config.max_lease).ttl()
}

/// Returns the server's run id, or `-` if servers are configured to keep their data.
fn run_id<'a>(config: &QuorumConfig, context: &ScriptContext<'a>) -> &'a str {
    if config.servers_are_durable {
        "-"
    } else {
        context.run_id
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
    pub(super) holds: &'a [QuorumHold],
    /// A time that some node has reached.
    pub(super) newest: ServerTime,
    pub(super) config: &'a QuorumConfig,
}

impl ScriptCall for RenewOnNode<'_> {
    type Reply = Vec<NodeRenewal>;

    const RENEWS: bool = true;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let mut cmd = context.script(ScriptId::Renew, script_ref);
        cmd.arg(self.holds.len() + 1).arg(&context.names.epoch);
        for hold in self.holds {
            cmd.arg(context.names.lock(&hold.attempt.key));
        }
        cmd.arg(run_id(self.config, context))
            .arg(millis(quarantine(self.config)))
            .arg(self.newest.0);
        for QuorumHold { attempt, token } in self.holds {
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
                result.ok_or_else(|| decode::malformed("a renewal index that is out of range"))?;
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
