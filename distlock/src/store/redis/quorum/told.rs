//! What a node of a quorum tells unasked.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::key::LockKey;
use crate::protocol::words::Owner;
use crate::store::client_id::{ClientId, plain_number};
use crate::store::redis::quorum::candidate::{Heard, Proven};
use crate::store::redis::wire::names::Names;
use crate::util::clock::Moment;

/// The receiver of it. It must not block.
pub(crate) type VoteSink = Arc<dyn Fn(Told) + Send + Sync>;

/// A message about a vote.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(super) key: LockKey,
    /// What the nodes know the ballot by.
    pub(super) owner: Owner,
    pub(super) heard: Heard,
}

impl Told {
    /// Reads a message on the client's channel: `vote owner token now lock`, `held owner token now
    /// lease lock`, or `lower owner token now lock`. Anything else is ignored. `given_at`: the
    /// local time before which that server time was not.
    pub(crate) fn read(
        names: &Names,
        client: &ClientId,
        message: &[Value],
        given_at: impl FnOnce(u64) -> Option<Moment>,
    ) -> Option<Self> {
        let Some(Value::BulkString(payload)) = message.get(1) else {
            return None;
        };
        let text = std::str::from_utf8(payload).ok()?;
        let mut fields = text.splitn(5, ' ');
        let what = fields.next()?;
        let (_, owner) = client.recognise(fields.next()?);
        let (token, at) = (plain_number(fields.next()?)?, plain_number(fields.next()?)?);
        let mut key = fields.next()?;
        let heard = match what {
            "vote" => Heard::Granted { token, at },
            "held" => {
                let (lease, rest) = key.split_once(' ')?;
                key = rest;
                let lease = Duration::from_millis(plain_number(lease)?);
                match given_at(at) {
                    Some(from) => Heard::HandedOn {
                        token,
                        at,
                        proof: Proven::new(from, lease),
                    },
                    // Nobody knows for how long it lasts: it is to be confirmed.
                    None => Heard::Granted { token, at },
                }
            }
            "lower" => Heard::Lower { at },
            _ => return None,
        };
        let key = key.strip_prefix(&names.lock)?;
        Some(Told {
            key: LockKey::from_tagged(key),
            owner: owner?,
            heard,
        })
    }
}
