//! The messages that a quorum's node pushes.

use std::time::Duration;

use crate::key::LockKey;
use crate::protocol::rules::Rules;
use crate::protocol::words::Owner;
use crate::store::client_id::plain_number;
use crate::store::redis::conn::group::Push;
use crate::store::redis::quorum::candidate::{Heard, Proven};

/// A message about a vote.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) key: LockKey,
    /// The owner id that the nodes know.
    pub(super) owner: Owner,
    pub(super) heard: Heard,
}

impl Told {
    /// Reads a message on the client's channel: `vote owner token now lock`, `held owner token now
    /// lease lock`, or `lower owner token now lock`. Anything else is ignored.
    pub(super) fn read(push: &Push<'_>, rules: Rules) -> Option<Self> {
        let mut fields = push.text.splitn(5, ' ');
        let what = fields.next()?;
        let (_, owner) = push.client.recognise(fields.next()?);
        let (token, at) = (plain_number(fields.next()?)?, plain_number(fields.next()?)?);
        let mut key = fields.next()?;
        let heard = match what {
            "vote" => Heard::Granted { token, at },
            "held" => {
                let (lease, rest) = key.split_once(' ')?;
                key = rest;
                let lease = Duration::from_millis(plain_number(lease)?);
                let given_at = if rules.grant_age {
                    push.server_time.earliest_grant_time(at, push.received)
                } else {
                    Some(push.received)
                };
                match given_at {
                    Some(from) => Heard::HandedOn {
                        token,
                        at,
                        proof: Proven::new(from, lease),
                    },
                    // The remaining time is unknown, so the vote must be confirmed.
                    None => Heard::Granted { token, at },
                }
            }
            "lower" => Heard::Lower { at },
            _ => return None,
        };
        let key = key.strip_prefix(&push.names.lock_prefix)?;
        Some(Told {
            key: LockKey::from_tagged(key),
            owner: owner?,
            heard,
        })
    }
}
