//! The commands to one node of a quorum, and their replies (see `lua/quorum/README.md`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use crate::key::LockKey;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{HolderView, OwnerNumber};
use crate::protocol::store_error::StoreError;
use crate::protocol::timing::Timing;
use crate::store::command::Release;
use crate::store::redis::quorum::config::QuorumConfig;
use crate::store::redis::quorum::vote_state::{NodeCommand, NodeEvent, Token};
use crate::store::redis::wire::call::{Dated, Decoded, ScriptCall, ScriptContext};
use crate::store::redis::wire::commands::ReleaseEffect;
use crate::store::redis::wire::decode;
use crate::store::redis::wire::encode::millis;
use crate::store::redis::wire::errors;
use crate::store::redis::wire::names::KeyKind;
use crate::store::redis::wire::reply::{self, ReplyReader, TimedReply};
use crate::store::redis::wire::scripts::{ScriptId, ScriptRef};
use crate::util::clock::BootInstant;

/// The request of one owner for a lock.
#[derive(Clone, Debug)]
pub(super) struct VoteRequest {
    pub(super) key: LockKey,
    /// The owner id that the nodes know. Once released, it is never requested again.
    pub(super) owner: OwnerNumber,
    pub(super) ticket: u64,
    pub(super) timing: Timing,
    pub(super) metadata: Option<Arc<str>>,
}

impl VoteRequest {
    fn holder_name<'a>(&self, context: &ScriptContext<'a>) -> Cow<'a, str> {
        context.holder_name(self.metadata.as_deref())
    }
}

/// The reply of a node, and for a vote request its view of the lock.
#[derive(Debug)]
pub(super) struct VoteReply {
    pub(super) event: NodeEvent,
    pub(super) view: Option<LockView>,
}

impl From<NodeEvent> for VoteReply {
    fn from(event: NodeEvent) -> Self {
        VoteReply { event, view: None }
    }
}

impl VoteReply {
    fn not_voting(view: LockView) -> Self {
        VoteReply {
            event: NodeEvent::NotVoting,
            view: Some(view),
        }
    }
}

/// A node's view of a lock that it did not grant.
#[derive(Clone, Debug, Default)]
pub(super) enum LockView {
    #[default]
    Unknown,
    /// Another owner has the node's vote, or holds the lock there.
    Occupied {
        holder: HolderView,
        is_held: bool,
    },
    Full,
    KeyConflict(String),
    /// The remaining time in which the node does not vote.
    NotVoting(Duration),
}

/// The result of renewing a hold on a node.
#[derive(Clone, Debug)]
pub(super) enum NodeRenewal {
    Held,
    /// No owner has the lock there, so the hold may be repaired.
    Free,
    NotOurs,
    /// The hold was revoked.
    Revoked,
    Error(StoreError),
}

/// An owner's command to a node.
pub(super) struct VoteCommand<'a> {
    pub(super) request: &'a VoteRequest,
    pub(super) command: NodeCommand,
    pub(super) wait: Duration,
    pub(super) quorum_config: &'a QuorumConfig,
}

impl ScriptCall for VoteCommand<'_> {
    type Reply = VoteReply;

    fn owner(&self) -> Option<OwnerNumber> {
        Some(self.request.owner)
    }

    fn is_acquire(&self) -> bool {
        matches!(self.command, NodeCommand::RequestVote(_))
    }

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let (request, quorum_config) = (self.request, self.quorum_config);
        let (settings, timing) = (context.settings, request.timing);
        match self.command {
            NodeCommand::RequestVote(token) => {
                let mut cmd = context.script(ScriptId::Acquire, script_ref);
                context.names.append_all_and_epoch(&mut cmd, &request.key);
                cmd.arg(context.owner(request.owner))
                    .arg(request.ticket)
                    .arg(millis(timing.ttl()))
                    .arg(context.apply_by())
                    .arg(millis(settings.fence_ttl))
                    .arg(&*request.holder_name(context))
                    .arg(format!(
                        "{} {} {} {} {} {} {}",
                        millis(timing.lease),
                        millis(self.wait),
                        settings.max_waiters,
                        millis(quorum_config.quarantine()),
                        quorum_config.run_id(context),
                        context.client.as_str(),
                        context.names.channel_prefix(&request.key),
                    ))
                    .arg(token.unwrap_or(0));
                cmd
            }
            NodeCommand::Yield(token) => {
                let mut cmd = context.script(ScriptId::Yield, script_ref);
                (context.names).append_all(&mut cmd, &request.key, &KeyKind::MUTEX, None);
                let (lease, ttl) = (millis(timing.lease), millis(timing.ttl()));
                cmd.arg(context.owner(request.owner))
                    .arg(token)
                    .arg(request.ticket)
                    .arg(format!("{lease} {ttl} {}", request.holder_name(context)))
                    .arg(millis(self.wait));
                context.append_client(&mut cmd, &request.key);
                cmd
            }
            NodeCommand::Confirm(token) => {
                let mut cmd = context.script(ScriptId::Confirm, script_ref);
                context.names.append_all_and_epoch(&mut cmd, &request.key);
                cmd.arg(context.owner(request.owner))
                    .arg(token)
                    .arg(millis(timing.ttl()))
                    .arg(millis(settings.fence_ttl))
                    .arg(request.ticket)
                    .arg(millis(quorum_config.quarantine()))
                    .arg(quorum_config.run_id(context));
                cmd
            }
        }
    }

    fn decode(&self, context: &ScriptContext<'_>, raw: TimedReply) -> Decoded<VoteReply> {
        if let NodeCommand::Yield(_) = self.command {
            return Dated::undated(NodeEvent::Yielded.into());
        }
        let mut reply = ReplyReader::from_list(raw.value)?;
        let (status, at) = (reply.int()?, reply.int()?);
        if let NodeCommand::RequestVote(_) = self.command {
            return Dated::at(at, read_vote(context, raw.sent_at, at, status, &mut reply)?);
        }
        let event = match status {
            1 => {
                let (token, sent_at) = (reply.token()?.get(), raw.sent_at);
                NodeEvent::Confirmed { token, sent_at }
            }
            2 => NodeEvent::Newer {
                token: reply.token()?.get(),
            },
            _ => NodeEvent::Refused,
        };
        Dated::at(at, event.into())
    }

    fn conflict_reply(&self, _: &ScriptContext<'_>, error_text: &str) -> Option<VoteReply> {
        let view = LockView::KeyConflict(error_text.to_owned());
        self.is_acquire().then(|| VoteReply::not_voting(view))
    }
}

/// Releases whatever the owner has on a node. If `next_token` is set, the next waiter gets the lock
/// at once with that token, unless the node may have lost data.
pub(super) struct ReleaseVote<'a> {
    pub(super) request: &'a VoteRequest,
    pub(super) keep_for: Duration,
    pub(super) next_token: Option<Token>,
    pub(super) quorum_config: &'a QuorumConfig,
}

impl ReleaseVote<'_> {
    fn release(&self) -> Release<'_> {
        Release {
            key: &self.request.key,
            kind: Kind::Mutex,
            owner: self.request.owner,
            keep_for: self.keep_for,
            success: None,
        }
    }
}

impl ScriptCall for ReleaseVote<'_> {
    type Reply = ReleaseEffect;

    fn owner(&self) -> Option<OwnerNumber> {
        Some(self.request.owner)
    }

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let (request, quorum_config) = (self.request, self.quorum_config);
        let Some(next_token) = self.next_token else {
            return self.release().encode(context, script_ref);
        };
        let mut cmd = context.script(ScriptId::Release, script_ref);
        context.names.append_all_and_epoch(&mut cmd, &request.key);
        cmd.arg(context.owner(request.owner))
            .arg(millis(self.keep_for));
        context.append_client(&mut cmd, &request.key);
        let (ticket, quarantine) = (request.ticket, millis(quorum_config.quarantine()));
        let run = quorum_config.run_id(context);
        cmd.arg(format!("{next_token} {ticket} {quarantine} {run}"));
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, raw: TimedReply) -> Decoded<ReleaseEffect> {
        self.release().decode(context, raw)
    }
}

/// Extends the holds on a node. The reply has the result of each hold, in the same order.
pub(super) struct RenewVotes<'a> {
    pub(super) holds: &'a [(VoteRequest, Token)],
    pub(super) quorum_config: &'a QuorumConfig,
}

impl ScriptCall for RenewVotes<'_> {
    type Reply = Vec<NodeRenewal>;

    const RENEWS: bool = true;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let (holds, quorum_config) = (self.holds, self.quorum_config);
        let mut cmd = context.script(ScriptId::Renew, script_ref);
        cmd.arg(holds.len() + 1).arg(&context.names.epoch);
        for (request, _) in holds {
            cmd.arg(context.names.lock(&request.key));
        }
        let newest = holds.iter().map(|(request, _)| request.ticket).max();
        cmd.arg(quorum_config.run_id(context))
            .arg(millis(quorum_config.quarantine()))
            .arg(newest.unwrap_or(0));
        for (request, token) in holds {
            cmd.arg(format!("{} {token}", context.owner(request.owner).0))
                .arg(millis(request.timing.ttl()));
        }
        cmd
    }

    fn decode(&self, _: &ScriptContext<'_>, raw: TimedReply) -> Decoded<Vec<NodeRenewal>> {
        let mut results = vec![NodeRenewal::Held; self.holds.len()];
        let mut reply = ReplyReader::from_list(raw.value)?;
        while let Some(failure) = reply.next() {
            let mut failure = ReplyReader::from_list(failure)?;
            let result = results.get_mut(failure.index()?);
            let result =
                result.ok_or_else(|| reply::malformed("a renewal index that is out of range"))?;
            *result = match &*failure.text()? {
                "" => NodeRenewal::NotOurs,
                "FREE" => NodeRenewal::Free,
                "REVOKED" => NodeRenewal::Revoked,
                error => NodeRenewal::Error(errors::classify_text(error)),
            };
        }
        Dated::undated(results)
    }
}

/// Takes a node's vote again for a hold that the node has lost, if the vote is free or unconfirmed.
pub(super) struct RepairVote<'a> {
    pub(super) request: &'a VoteRequest,
    pub(super) token: Token,
    pub(super) quorum_config: &'a QuorumConfig,
}

impl ScriptCall for RepairVote<'_> {
    type Reply = ();

    fn owner(&self) -> Option<OwnerNumber> {
        Some(self.request.owner)
    }

    fn is_acquire(&self) -> bool {
        true
    }

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let (request, quorum_config) = (self.request, self.quorum_config);
        let mut cmd = context.script(ScriptId::Repair, script_ref);
        context.names.append_all_and_epoch(&mut cmd, &request.key);
        cmd.arg(context.owner(request.owner))
            .arg(self.token)
            .arg(request.ticket)
            .arg(millis(request.timing.ttl()))
            .arg(context.apply_by())
            .arg(millis(context.settings.fence_ttl))
            .arg(&*request.holder_name(context))
            .arg(quorum_config.run_id(context))
            .arg(millis(quorum_config.quarantine()));
        cmd
    }

    fn decode(&self, _: &ScriptContext<'_>, _: TimedReply) -> Decoded<()> {
        Dated::undated(())
    }
}

/// Reads the rest of a reply to a vote request, after the status.
fn read_vote(
    context: &ScriptContext<'_>,
    sent_at: BootInstant,
    at: u64,
    status: u64,
    reply: &mut ReplyReader,
) -> Result<VoteReply, StoreError> {
    let event = match status {
        1 => {
            let token = reply.token()?.get();
            match reply.int()? {
                1 => NodeEvent::Confirmed { token, sent_at },
                _ => NodeEvent::Granted { token, at },
            }
        }
        2 => NodeEvent::AlreadyGranted {
            token: reply.token()?.get(),
            lower: reply.int()? == 1,
            at,
        },
        3 => {
            let value = reply.text()?;
            let vote = context.decode_vote(&value, decode::kept_until(at, reply)?);
            let view = vote.map(|(holder, is_held)| LockView::Occupied { holder, is_held });
            return Ok(VoteReply {
                event: NodeEvent::Queued { at },
                view: Some(view.unwrap_or_default()),
            });
        }
        4 => NodeEvent::NoReply,
        5 => {
            return Ok(VoteReply::not_voting(LockView::KeyConflict(
                errors::CONFLICT.to_owned(),
            )));
        }
        6 => return Ok(VoteReply::not_voting(LockView::Full)),
        7 => {
            let remaining = Duration::from_micros(reply.int()?.saturating_sub(at));
            return Ok(VoteReply::not_voting(LockView::NotVoting(remaining)));
        }
        other => return Err(reply::unknown_status(other, "a vote request")),
    };
    Ok(VoteReply {
        event,
        view: Some(LockView::Unknown),
    })
}
