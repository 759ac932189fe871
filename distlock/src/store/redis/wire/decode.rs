//! The values of locks, and messages, in the protocol's words.

use std::time::Duration;

use redis::Value;

use crate::config::options::Durability;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::timing::Timing;
use crate::protocol::trouble::{Trouble, one_line};
use crate::protocol::words::{Grant, Occupant, Revocation, Waiting};
use crate::store::client_id::{ClientId, plain_number};
use crate::store::redis::wire::call::Scope;
use crate::store::redis::wire::reply::{self, Reply};
use crate::store::redis::wire::trouble;
use crate::util::clock::Moment;

/// How a lock's value begins: with the number of its layout. A value of another layout is foreign.
const LAYOUT: &str = "2 ";

impl Scope<'_> {
    /// Reads a message on this client's channel, with the local time of the server's. Anything that
    /// is not a grant to us is ignored.
    pub(crate) fn grant(
        &self,
        text: &str,
        local: impl FnOnce(u64) -> Option<Moment>,
    ) -> Option<Grant> {
        let mut fields = text.splitn(5, ' ');
        let (_, owner) = self.client.recognise(fields.next()?);
        let mut number = || plain_number(fields.next()?);
        let (token, granted, lease) = (number()?, number()?, number()?);
        let key = fields.next()?.strip_prefix(&self.names.lock)?;
        if token == 0 || lease == 0 || key.is_empty() {
            return None;
        }
        Some(Grant {
            key: LockKey::from_tagged(key),
            owner: owner?,
            token: FencingToken::new(token),
            granted_at: local(granted),
            // Whatever it says, it is short (R4).
            lease: Timing::new(Duration::from_millis(lease)).grant().lease,
        })
    }

    /// Reads the same message, if it says that a lock is taken away.
    pub(crate) fn revocation(&self, text: &str) -> Option<Revocation> {
        let (said, by) = text.strip_prefix("revoked ")?.split_once('\n')?;
        let (token, key) = said.split_once(' ')?;
        Some(Revocation {
            key: LockKey::from_tagged(key.strip_prefix(&self.names.lock)?),
            token: FencingToken::new(plain_number(token)?),
            by: one_line(by.to_owned()),
        })
    }

    /// The keys of a step of a scan, and where the next begins, if there is one.
    pub(crate) fn scanned(&self, answer: Value) -> Result<(Vec<LockKey>, Option<String>), Trouble> {
        let mut reply = Reply::list(answer)?;
        let cursor = reply.text()?;
        let mut names = Reply::list(reply.next().unwrap_or(Value::Nil))?;
        let mut keys = Vec::new();
        while let Some(name) = names.next() {
            // Whatever is not a text of ours is no lock.
            let name = reply::text(name).unwrap_or_default();
            let key = name.strip_prefix(&self.names.lock).map(untagged);
            keys.extend(key.and_then(|key| LockKey::new(key).ok()));
        }
        Ok((keys, (cursor != "0").then_some(cursor)))
    }

    /// Reads the value of a lock that ends at `ends_at`; `None` for an empty or a foreign value.
    pub(crate) fn occupant(&self, value: &str, ends_at: Option<u64>) -> Option<Occupant> {
        let mut fields = value.strip_prefix(LAYOUT)?.splitn(5, ' ');
        let owner = fields.next()?;
        let (client, number) = owner.split_once(':')?;
        if !is_made_of(client, char::is_ascii_hexdigit) || !is_made_of(number, char::is_ascii_digit)
        {
            return None;
        }
        let (this_process, ours) = self.client.recognise(owner);
        let token = fields.next()?;
        // One leading zero marks a lock that was released and is kept; two mark one that was
        // revoked.
        let is_kept = token.starts_with('0') && !token.starts_with("00");
        let token = FencingToken::new(token.parse().ok()?);
        let _ttl: u64 = fields.next()?.parse().ok()?;
        Some(Occupant {
            ours,
            this_process,
            token,
            since: fields.next()?.parse().ok()?,
            kept_until: ends_at.filter(|_| is_kept),
            name: one_line(fields.next()?.to_owned()),
        })
    }

    /// Reads `3 state owner token ticket ttl since name`, the value of a lock at a node of a
    /// quorum, and whether it is held: it has voted otherwise.
    pub(crate) fn vote(&self, value: &str, ends_at: Option<u64>) -> Option<(Occupant, bool)> {
        let mut fields = value.strip_prefix("3 ")?.splitn(7, ' ');
        let state = fields.next()?;
        let (this_process, ours) = self.client.recognise(fields.next()?);
        let mut number = || fields.next()?.parse().ok();
        let (token, _ticket, _ttl, since) = (number()?, number()?, number()?, number()?);
        let occupant = Occupant {
            ours,
            this_process,
            token: FencingToken::new(token),
            since,
            kept_until: ends_at.filter(|_| state == "kept"),
            name: one_line(fields.next()?.to_owned()),
        };
        Some((occupant, state != "vote"))
    }
}

/// A key as its user wrote it, as far as that can be told: braces around the whole of it only steer
/// its slot.
fn untagged(key: &str) -> &str {
    let inner = key.strip_prefix('{').and_then(|key| key.strip_suffix('}'));
    inner.unwrap_or(key)
}

/// Returns when a lock with `left` ms at the time `at` ends (server time, µs).
pub(crate) fn ends_at(at: u64, left: i64) -> Option<u64> {
    let left = u64::try_from(left).ok()?;
    Some(at.saturating_add(left.saturating_mul(1_000)))
}

/// Reads the end of a kept lock, if the reply goes on with the time that is left of one.
pub(crate) fn kept_until(at: u64, reply: &mut Reply) -> Result<Option<u64>, Trouble> {
    match reply.next() {
        Some(left) => Ok(ends_at(at, Reply::one(left).signed()?)),
        None => Ok(None),
    }
}

/// The rest of an inspection: three fields for each waiter.
pub(crate) fn waiting(client: &ClientId, reply: &mut Reply) -> Result<Vec<Waiting>, Trouble> {
    let mut waiting = Vec::new();
    while let Some(owner) = reply.next() {
        let (this_process, _) = client.recognise(&reply::text(owner)?);
        let place = reply.text()?;
        let entry = reply.text()?;
        waiting.push(Waiting {
            this_process,
            since: place.parse().unwrap_or_default(),
            name: one_line(entry.splitn(4, ' ').nth(3).unwrap_or_default().to_owned()),
        });
    }
    Ok(waiting)
}

/// `held token`, which is the server's time as well, or `held token now`.
pub(crate) fn held(text: &str) -> Result<(FencingToken, u64), Trouble> {
    let numbers = text.strip_prefix("held ").map(|numbers| {
        let (token, now) = numbers.split_once(' ').unwrap_or((numbers, numbers));
        (plain_number(token), plain_number(now))
    });
    match numbers {
        Some((Some(token @ 1..), Some(now))) => Ok((FencingToken::new(token), now)),
        _ => Err(reply::nonsense("a text that is no hold")),
    }
}

/// Whether as many acknowledged as need be.
pub(crate) fn acknowledged(need: Durability, answer: Value) -> Result<bool, Trouble> {
    let (local, replicas) = if need.fsync {
        let mut reply = Reply::list(answer)?;
        (reply.int()?, reply.int()?)
    } else {
        (1, Reply::one(answer).int()?)
    };
    Ok(local >= 1 && replicas >= u64::from(need.replicas))
}

/// The server's time, and what stood in the way of the probe's write.
pub(crate) fn probe(answer: Value) -> Result<(u64, Option<Trouble>), Trouble> {
    let mut reply = Reply::list(answer)?;
    let at = reply.int()?;
    let refused = reply.text()?;
    Ok((
        at,
        (!refused.is_empty()).then(|| trouble::of_text(&refused)),
    ))
}

fn is_made_of(text: &str, kind: fn(&char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(|c| kind(&c))
}
