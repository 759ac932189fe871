//! The messages that a quorum's node pushes.

use std::time::Duration;

use crate::key::LockKey;
use crate::protocol::messages::OwnerNumber;
use crate::protocol::rules::Rules;
use crate::store::client_id::parse_number;
use crate::store::redis::conn::group::Push;
use crate::store::redis::quorum::vote_state::{NodeEvent, NodeProof};

/// A message about a vote.
#[derive(Clone, Debug)]
pub(super) struct VotePush {
    pub(super) key: LockKey,
    /// The owner id that the nodes know.
    pub(super) owner: OwnerNumber,
    pub(super) event: NodeEvent,
}

impl VotePush {
    /// Reads a message on the client's channel: `vote owner token now lock`, `held owner token now
    /// lease lock`, or `lower owner token now lock`. Anything else is ignored.
    pub(super) fn read(push: &Push<'_>, rules: Rules) -> Option<Self> {
        let mut fields = push.text.splitn(5, ' ');
        let kind = fields.next()?;
        let (_, owner) = push.client.recognize(fields.next()?);
        let (token, at) = (parse_number(fields.next()?)?, parse_number(fields.next()?)?);
        let mut key = fields.next()?;
        let event = match kind {
            "vote" => NodeEvent::Granted { token, at },
            "held" => {
                let (lease, rest) = key.split_once(' ')?;
                key = rest;
                let lease = Duration::from_millis(parse_number(lease)?);
                let granted_at = if rules.grant_age {
                    push.server_time.earliest_grant_time(at, push.received)
                } else {
                    Some(push.received)
                };
                match granted_at {
                    Some(from) => NodeEvent::HandedOff {
                        token,
                        at,
                        proof: NodeProof::new(from, lease),
                    },
                    // The remaining time is unknown, so the vote must be confirmed.
                    None => NodeEvent::Granted { token, at },
                }
            }
            "lower" => NodeEvent::LowerTicketQueued { at },
            _ => return None,
        };
        let key = key.strip_prefix(&push.names.lock_prefix)?;
        Some(VotePush {
            key: LockKey::from_tagged(key),
            owner: owner?,
            event,
        })
    }
}
