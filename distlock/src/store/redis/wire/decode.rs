//! Each answer in the protocol's words, and each message.

use std::time::Duration;

use redis::Value;

use crate::config::options::Durability;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::timing::Timing;
use crate::protocol::trouble::{Code, Trouble, one_line};
use crate::protocol::words::{
    AskReply, Inspection, Look, LookReply, Occupant, Owner, Proof, Renewal, RenewalFailure,
    Revocation, Revoked, Waiting,
};
use crate::store::client_id::{ClientId, plain_number};
use crate::store::redis::wire::names::Names;
use crate::store::redis::wire::reply::{self, Reply};
use crate::store::redis::wire::trouble;
use crate::util::clock::Moment;

/// How a lock's value begins: with the number of its layout. A value of another layout is foreign.
const LAYOUT: &str = "2 ";

/// What the script of an ask answers first, unless the lock is held: then it answers a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Queued,
    Busy,
    Late,
    Foreign,
    Full,
}

impl TryFrom<u64> for Verdict {
    type Error = Trouble;

    fn try_from(number: u64) -> Result<Self, Trouble> {
        Ok(match number {
            2 => Verdict::Queued,
            3 => Verdict::Busy,
            4 => Verdict::Late,
            5 => Verdict::Foreign,
            6 => Verdict::Full,
            other => return Err(reply::nonsense(&format!("verdict {other}"))),
        })
    }
}

/// An answer that says when it was given.
#[derive(Debug)]
pub(crate) struct Dated<T> {
    /// Server time, µs.
    pub(crate) at: u64,
    pub(crate) said: T,
}

/// A message that says who was granted what.
#[derive(Debug)]
pub(crate) struct Pushed {
    pub(crate) key: LockKey,
    pub(crate) owner: Owner,
    pub(crate) token: FencingToken,
    /// Server time, µs.
    pub(crate) granted: u64,
    pub(crate) lease: Duration,
}

/// What a client needs to understand its server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder<'a> {
    pub(crate) names: &'a Names,
    pub(crate) client: &'a ClientId,
}

impl Decoder<'_> {
    pub(crate) fn ask(
        &self,
        key: &LockKey,
        sent: Moment,
        answer: Value,
    ) -> Result<Dated<AskReply>, Trouble> {
        if !reply::is_list(&answer) {
            let (token, at) = held(&Reply::one(answer).text()?)?;
            let said = AskReply::Held(Proof { sent, token });
            return Ok(Dated { at, said });
        }
        let mut reply = Reply::list(answer)?;
        let verdict = reply.int()?;
        let at = reply.int()?;
        let said = match Verdict::try_from(verdict)? {
            Verdict::Late => AskReply::Late,
            Verdict::Foreign => AskReply::Foreign(self.foreign(key, trouble::FOREIGN_VALUE)),
            verdict @ (Verdict::Queued | Verdict::Busy | Verdict::Full) => {
                let value = reply.text()?;
                let kept_until = kept_until(at, &mut reply)?;
                match (verdict, self.occupant(&value, kept_until)) {
                    // The script's pattern is wider than what we write.
                    (_, None) if !value.is_empty() => {
                        AskReply::Foreign(self.foreign(key, trouble::FOREIGN_VALUE))
                    }
                    (Verdict::Queued, occupant) => AskReply::Queued(occupant),
                    (Verdict::Busy, occupant) => AskReply::Busy(occupant),
                    (_, occupant) => AskReply::Full(occupant),
                }
            }
        };
        Ok(Dated { at, said })
    }

    /// What an error says about an ask.
    pub(crate) fn refused_ask(&self, key: &LockKey, refusal: Trouble) -> Result<AskReply, Trouble> {
        if refusal.code == Code::Foreign {
            Ok(AskReply::Foreign(self.foreign(key, &refusal.detail)))
        } else {
            Err(refusal)
        }
    }

    /// For each lock what was seen of it.
    pub(crate) fn look(
        &self,
        looks: &[Look],
        answer: Value,
    ) -> Result<Dated<Vec<LookReply>>, Trouble> {
        let mut reply = Reply::list(answer)?;
        let at = reply.int()?;
        let mut each = |look: &Look| match reply.next() {
            Some(seen) => self.seen(look, at, seen),
            None => Err(reply::nonsense("a look that is too short")),
        };
        let said: Result<_, Trouble> = looks.iter().map(&mut each).collect();
        Ok(Dated { at, said: said? })
    }

    fn seen(&self, look: &Look, at: u64, seen: Value) -> Result<LookReply, Trouble> {
        if !reply::is_list(&seen) {
            let trouble = trouble::of_text(&Reply::one(seen).text()?);
            return Ok(if trouble.code == Code::Foreign {
                LookReply::Foreign(self.foreign(&look.key, &trouble.detail))
            } else {
                LookReply::Failed(trouble)
            });
        }
        let mut fields = Reply::list(seen)?;
        let value = fields.text()?;
        let ends_at = ends_at(at, fields.signed()?);
        let occupant = self.occupant(&value, ends_at);
        if occupant.is_none() && !value.is_empty() {
            let detail = self.foreign(&look.key, trouble::FOREIGN_VALUE);
            return Ok(LookReply::Foreign(detail));
        }
        let mut indices = Reply::list(fields.next().unwrap_or(Value::Nil))?;
        let mut missing = Vec::new();
        while let Some(index) = indices.next() {
            let index = usize::try_from(Reply::one(index).int()?).unwrap_or(usize::MAX);
            let owner = look.owners.get(index);
            missing.push(*owner.ok_or_else(|| reply::nonsense("a missing owner's index"))?);
        }
        Ok(LookReply::Seen { occupant, missing })
    }

    pub(crate) fn inspect(
        &self,
        key: &LockKey,
        answer: Value,
    ) -> Result<Dated<Inspection>, Trouble> {
        let mut reply = Reply::list(answer)?;
        let at = reply.int()?;
        let value = reply.text()?;
        let left = reply.signed()?;
        let waiters = reply.int()?;
        let last = reply.text()?;
        let held = reply.int()? == 1;
        let occupant = self.occupant(&value, ends_at(at, left));
        let said = if occupant.is_none() && held {
            self.foreign_lock(key, trouble::FOREIGN_VALUE)
        } else {
            Inspection {
                occupant,
                left: left_of(left),
                waiters,
                waiting: waiting(self.client, &mut reply)?,
                last_token: last.parse().ok().map(FencingToken::new),
                ..Inspection::default()
            }
        };
        Ok(Dated { at, said })
    }

    /// What an error says about an inspection.
    pub(crate) fn refused_inspection(
        &self,
        key: &LockKey,
        refusal: Trouble,
    ) -> Result<Inspection, Trouble> {
        if refusal.code == Code::Foreign {
            Ok(self.foreign_lock(key, &refusal.detail))
        } else {
            Err(refusal)
        }
    }

    fn foreign_lock(&self, key: &LockKey, what: &str) -> Inspection {
        Inspection {
            foreign: Some(self.foreign(key, what)),
            ..Inspection::default()
        }
    }

    /// Reads a message on this client's channel. Anything that is not a grant to us is ignored.
    pub(crate) fn grant(&self, message: &[Value]) -> Option<Pushed> {
        let Some(Value::BulkString(payload)) = message.get(1) else {
            return None;
        };
        let text = std::str::from_utf8(payload).ok()?;
        let mut fields = text.splitn(5, ' ');
        let (_, owner) = self.client.recognise(fields.next()?);
        let mut number = || plain_number(fields.next()?);
        let (token, granted, lease) = (number()?, number()?, number()?);
        let key = fields.next()?.strip_prefix(&self.names.lock)?;
        if token == 0 || lease == 0 || key.is_empty() {
            return None;
        }
        Some(Pushed {
            key: LockKey::from_tagged(key),
            owner: owner?,
            token: FencingToken::new(token),
            granted,
            // Whatever it says, it is short (R4).
            lease: Timing::new(Duration::from_millis(lease)).grant().lease,
        })
    }

    /// Reads the same message, if it says that a lock is taken away.
    pub(crate) fn revocation(&self, message: &[Value]) -> Option<Revocation> {
        let Some(Value::BulkString(payload)) = message.get(1) else {
            return None;
        };
        let text = std::str::from_utf8(payload)
            .ok()?
            .strip_prefix("revoked ")?;
        let (said, by) = text.split_once('\n')?;
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
            let name = Reply::one(name).text().unwrap_or_default();
            let key = name.strip_prefix(&self.names.lock).map(untagged);
            keys.extend(key.and_then(|key| LockKey::new(key).ok()));
        }
        Ok((keys, (cursor != "0").then_some(cursor)))
    }

    /// Reads the value of a lock that ends at `ends_at`; `None` for an empty or a foreign value.
    fn occupant(&self, value: &str, ends_at: Option<u64>) -> Option<Occupant> {
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

    /// What is said of something that is not ours, and where to find it.
    fn foreign(&self, key: &LockKey, what: &str) -> String {
        let [lock, queue, entry, fence] = self.names.of(key);
        format!("{what} (one of `{lock}`, `{queue}`, `{entry}`, `{fence}`)")
    }
}

/// A key as its user wrote it, as far as that can be told: braces around the whole of it only steer
/// its slot.
fn untagged(key: &str) -> &str {
    let inner = key.strip_prefix('{').and_then(|key| key.strip_suffix('}'));
    inner.unwrap_or(key)
}

/// What is left of a lock, if it is there and ends.
pub(crate) fn left_of(left: i64) -> Option<Duration> {
    u64::try_from(left).ok().map(Duration::from_millis)
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
        let (this_process, _) = client.recognise(&Reply::one(owner).text()?);
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

pub(crate) fn revoke(answer: Value) -> Result<Revoked, Trouble> {
    let mut reply = Reply::list(answer)?;
    let verdict = reply.int()?;
    let fence = reply.text()?;
    let newest = || {
        let token = plain_number(&fence).filter(|token| *token > 0);
        let token = token.ok_or_else(|| reply::nonsense("a revocation's token"))?;
        Ok(FencingToken::new(token))
    };
    Ok(match verdict {
        0 => Revoked::NotHeld,
        1 => Revoked::Ending(newest()?),
        2 => Revoked::Deleted(newest()?),
        3 => Revoked::Connected,
        other => return Err(reply::nonsense(&format!("{other} to a revocation"))),
    })
}

/// `held token`, which is the server's time as well, or `held token now`.
fn held(text: &str) -> Result<(FencingToken, u64), Trouble> {
    let numbers = text.strip_prefix("held ").map(|numbers| {
        let (token, now) = numbers.split_once(' ').unwrap_or((numbers, numbers));
        (plain_number(token), plain_number(now))
    });
    match numbers {
        Some((Some(token @ 1..), Some(now))) => Ok((FencingToken::new(token), now)),
        _ => Err(reply::nonsense("a text that is no hold")),
    }
}

pub(crate) fn confirm(sent: Moment, answer: Value) -> Result<Dated<Option<Proof>>, Trouble> {
    let mut reply = Reply::list(answer)?;
    let confirmed = reply.int()? == 1;
    let at = reply.int()?;
    let said = if confirmed {
        let token = reply.token()?;
        Some(Proof { sent, token })
    } else {
        None
    };
    Ok(Dated { at, said })
}

/// What could not be renewed, by index.
pub(crate) fn renew(
    batch: &[Renewal],
    answer: Value,
) -> Result<Vec<(usize, RenewalFailure)>, Trouble> {
    let mut reply = Reply::list(answer)?;
    let mut failures: Vec<(usize, RenewalFailure)> = Vec::new();
    while let Some(failure) = reply.next() {
        let mut failure = Reply::list(failure)?;
        let index = usize::try_from(failure.int()?).unwrap_or(usize::MAX);
        // In the order of the batch: whoever reads them passes each once.
        let rises = failures.last().is_none_or(|(last, _)| *last < index);
        if index >= batch.len() || !rises {
            return Err(reply::nonsense("a renewal's index"));
        }
        let error = failure.text()?;
        failures.push(match error.as_str() {
            "" => (index, RenewalFailure::Gone),
            "REVOKED" => (index, RenewalFailure::Revoked),
            error => (index, RenewalFailure::Trouble(trouble::of_text(error))),
        });
    }
    Ok(failures)
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

/// What became of a release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removed {
    pub(crate) was_held: bool,
    /// There are more dead waiters than one call removes.
    pub(crate) more: bool,
}

pub(crate) fn release(answer: Value) -> Result<Removed, Trouble> {
    let (was_held, more) = match Reply::one(answer).text()?.as_str() {
        "0" => (false, false),
        "1" => (true, false),
        "2" => (false, true),
        "3" => (true, true),
        other => return Err(reply::nonsense(&format!("{other} to a release"))),
    };
    Ok(Removed { was_held, more })
}

/// The server's time, and what stood in the way of the probe's write.
pub(crate) fn probe(answer: Value) -> Result<Dated<Option<Trouble>>, Trouble> {
    let mut reply = Reply::list(answer)?;
    let at = reply.int()?;
    let refused = reply.text()?;
    let said = (!refused.is_empty()).then(|| trouble::of_text(&refused));
    Ok(Dated { at, said })
}

fn is_made_of(text: &str, kind: fn(&char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(|c| kind(&c))
}
