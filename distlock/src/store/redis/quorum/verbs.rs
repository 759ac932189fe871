//! The commands to one node of a quorum, and their replies (see `lua/quorum/README.md`).

use std::time::Duration;

use redis::{Cmd, Value};

use crate::key::LockKey;
use crate::protocol::timing::Timing;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Occupant, Owner};
use crate::store::command::Release;
use crate::store::redis::quorum::candidate::{Heard, Say, Token};
use crate::store::redis::quorum::terms::Terms;
use crate::store::redis::wire::call::{Dated, Decoded, Scope, ScriptCall};
use crate::store::redis::wire::commands::ReleaseEffect;
use crate::store::redis::wire::decode;
use crate::store::redis::wire::encode::millis;
use crate::store::redis::wire::errors;
use crate::store::redis::wire::reply::{self, ReplyReader};
use crate::store::redis::wire::scripts::{ScriptId, ScriptRef};
use crate::util::clock::Moment;

/// The request of one owner for a lock.
#[derive(Clone, Debug)]
pub(super) struct Asks {
    pub(super) key: LockKey,
    /// The owner id that the nodes know. Once released, it is never requested again.
    pub(super) owner: Owner,
    pub(super) ticket: u64,
    pub(super) timing: Timing,
}

/// The reply of a node, and for a vote request its view of the lock.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) heard: Heard,
    pub(super) seen: Option<Seen>,
}

impl From<Heard> for Answer {
    fn from(heard: Heard) -> Self {
        Answer { heard, seen: None }
    }
}

impl Answer {
    fn not_voting(seen: Seen) -> Self {
        Answer {
            heard: Heard::NotVoting,
            seen: Some(seen),
        }
    }
}

/// A node's view of a lock that it did not grant.
#[derive(Clone, Debug, Default)]
pub(super) enum Seen {
    #[default]
    Nothing,
    /// Another owner has the node's vote, or holds the lock there.
    Occupied {
        by: Occupant,
        is_held: bool,
    },
    Full,
    Foreign(String),
    /// The remaining time in which the node does not vote.
    NotVoting(Duration),
}

/// The result of renewing a hold on a node.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    Ours,
    /// No owner has the lock there, so the hold may be repaired.
    Free,
    NotOurs,
    /// The hold was revoked.
    Revoked,
    Trouble(Trouble),
}

/// A candidate's command to a node.
pub(super) struct Vote<'a> {
    pub(super) asks: &'a Asks,
    pub(super) say: Say,
    pub(super) wait: Duration,
    pub(super) terms: &'a Terms,
}

impl ScriptCall for Vote<'_> {
    type Reply = Answer;

    fn owner(&self) -> Option<Owner> {
        Some(self.asks.owner)
    }

    fn is_acquire(&self) -> bool {
        matches!(self.say, Say::Ask(_))
    }

    fn encode(&self, scope: &Scope<'_>, by: ScriptRef) -> Cmd {
        let Vote { asks, terms, .. } = self;
        let (settings, timing) = (scope.settings, asks.timing);
        match self.say {
            Say::Ask(named) => {
                let mut cmd = scope.script(ScriptId::Acquire, by);
                scope.names.append_keys_and_epoch(&mut cmd, &asks.key);
                cmd.arg(scope.owner(asks.owner))
                    .arg(asks.ticket)
                    .arg(millis(timing.ttl()))
                    .arg(scope.apply_by())
                    .arg(millis(settings.fence_ttl))
                    .arg(&settings.name)
                    .arg(format!(
                        "{} {} {} {} {} {} {}",
                        millis(timing.lease),
                        millis(self.wait),
                        settings.max_waiters,
                        millis(terms.quarantine()),
                        terms.run(scope),
                        scope.client.as_str(),
                        scope.names.channel_prefix(&asks.key),
                    ))
                    .arg(named.unwrap_or(0));
                cmd
            }
            Say::Yield(token) => {
                let mut cmd = scope.script(ScriptId::Yield, by);
                scope.names.append_counted_keys(&mut cmd, &asks.key);
                let (lease, ttl) = (millis(timing.lease), millis(timing.ttl()));
                cmd.arg(scope.owner(asks.owner))
                    .arg(token)
                    .arg(asks.ticket)
                    .arg(format!("{lease} {ttl} {}", settings.name))
                    .arg(millis(self.wait));
                scope.append_client(&mut cmd, &asks.key);
                cmd
            }
            Say::Confirm(token) => {
                let mut cmd = scope.script(ScriptId::Confirm, by);
                scope.names.append_keys_and_epoch(&mut cmd, &asks.key);
                cmd.arg(scope.owner(asks.owner))
                    .arg(token)
                    .arg(millis(timing.ttl()))
                    .arg(millis(settings.fence_ttl))
                    .arg(asks.ticket)
                    .arg(millis(terms.quarantine()))
                    .arg(terms.run(scope));
                cmd
            }
        }
    }

    fn decode(&self, scope: &Scope<'_>, sent: Moment, answer: Value) -> Decoded<Answer> {
        if let Say::Yield(_) = self.say {
            return Dated::undated(Heard::Yielded.into());
        }
        let mut reply = ReplyReader::from_list(answer)?;
        let (verdict, at) = (reply.int()?, reply.int()?);
        if let Say::Ask(_) = self.say {
            return Dated::at(at, read_ask(scope, sent, at, verdict, &mut reply)?);
        }
        let heard = match verdict {
            1 => {
                let token = reply.token()?.get();
                Heard::Confirmed { token, sent }
            }
            2 => Heard::Newer {
                token: reply.token()?.get(),
            },
            _ => Heard::Refused,
        };
        Dated::at(at, heard.into())
    }

    fn foreign(&self, _: &Scope<'_>, what: &str) -> Option<Answer> {
        let seen = Seen::Foreign(what.to_owned());
        self.is_acquire().then(|| Answer::not_voting(seen))
    }
}

/// Releases whatever the owner has on a node. If `named` is set, the next waiter gets the lock at
/// once with that token, unless the node may have lost data.
pub(super) struct HandOn<'a> {
    pub(super) asks: &'a Asks,
    pub(super) keep: Duration,
    pub(super) named: Option<Token>,
    pub(super) terms: &'a Terms,
}

impl HandOn<'_> {
    fn release(&self) -> Release<'_> {
        Release {
            key: &self.asks.key,
            owner: self.asks.owner,
            keep: self.keep,
        }
    }
}

impl ScriptCall for HandOn<'_> {
    type Reply = ReleaseEffect;

    fn owner(&self) -> Option<Owner> {
        Some(self.asks.owner)
    }

    fn encode(&self, scope: &Scope<'_>, by: ScriptRef) -> Cmd {
        let HandOn { asks, terms, .. } = self;
        let Some(named) = self.named else {
            return self.release().encode(scope, by);
        };
        let mut cmd = scope.script(ScriptId::Release, by);
        scope.names.append_keys_and_epoch(&mut cmd, &asks.key);
        let (quarantine, run) = (millis(terms.quarantine()), terms.run(scope));
        cmd.arg(scope.owner(asks.owner)).arg(millis(self.keep));
        scope.append_client(&mut cmd, &asks.key);
        cmd.arg(format!("{named} {} {quarantine} {run}", asks.ticket));
        cmd
    }

    fn decode(&self, scope: &Scope<'_>, sent: Moment, answer: Value) -> Decoded<ReleaseEffect> {
        self.release().decode(scope, sent, answer)
    }
}

/// Extends the holds on a node. The reply has the result of each hold, in the same order.
pub(super) struct RenewVotes<'a> {
    pub(super) holds: &'a [(Asks, Token)],
    pub(super) terms: &'a Terms,
}

impl ScriptCall for RenewVotes<'_> {
    type Reply = Vec<Kept>;

    const RENEWS: bool = true;

    fn encode(&self, scope: &Scope<'_>, by: ScriptRef) -> Cmd {
        let RenewVotes { holds, terms } = self;
        let mut cmd = scope.script(ScriptId::Renew, by);
        cmd.arg(holds.len() + 1).arg(&scope.names.epoch);
        for (asks, _) in *holds {
            cmd.arg(scope.names.lock(&asks.key));
        }
        let newest = holds.iter().map(|(asks, _)| asks.ticket).max();
        cmd.arg(terms.run(scope))
            .arg(millis(terms.quarantine()))
            .arg(newest.unwrap_or(0));
        for (asks, token) in *holds {
            cmd.arg(format!("{} {token}", scope.owner(asks.owner).0))
                .arg(millis(asks.timing.ttl()));
        }
        cmd
    }

    fn decode(&self, _: &Scope<'_>, _: Moment, answer: Value) -> Decoded<Vec<Kept>> {
        let mut kept = vec![Kept::Ours; self.holds.len()];
        let mut reply = ReplyReader::from_list(answer)?;
        while let Some(failure) = reply.next() {
            let mut failure = ReplyReader::from_list(failure)?;
            let kept = kept.get_mut(failure.index()?);
            let kept = kept.ok_or_else(|| reply::malformed("a hold that was not renewed"))?;
            *kept = match &*failure.text()? {
                "" => Kept::NotOurs,
                "FREE" => Kept::Free,
                "REVOKED" => Kept::Revoked,
                error => Kept::Trouble(errors::classify_text(error)),
            };
        }
        Dated::undated(kept)
    }
}

/// Takes a free vote for a hold that the node has lost.
pub(super) struct Repair<'a> {
    pub(super) asks: &'a Asks,
    pub(super) token: Token,
    pub(super) terms: &'a Terms,
}

impl ScriptCall for Repair<'_> {
    type Reply = ();

    fn owner(&self) -> Option<Owner> {
        Some(self.asks.owner)
    }

    fn is_acquire(&self) -> bool {
        true
    }

    fn encode(&self, scope: &Scope<'_>, by: ScriptRef) -> Cmd {
        let Repair { asks, terms, .. } = self;
        let mut cmd = scope.script(ScriptId::Repair, by);
        scope.names.append_keys_and_epoch(&mut cmd, &asks.key);
        cmd.arg(scope.owner(asks.owner))
            .arg(self.token)
            .arg(asks.ticket)
            .arg(millis(asks.timing.ttl()))
            .arg(scope.apply_by())
            .arg(millis(scope.settings.fence_ttl))
            .arg(&scope.settings.name)
            .arg(terms.run(scope))
            .arg(millis(terms.quarantine()));
        cmd
    }

    fn decode(&self, _: &Scope<'_>, _: Moment, _: Value) -> Decoded<()> {
        Dated::undated(())
    }
}

/// Reads the rest of a reply to a vote request, after the verdict.
fn read_ask(
    scope: &Scope<'_>,
    sent: Moment,
    at: u64,
    verdict: u64,
    reply: &mut ReplyReader,
) -> Result<Answer, Trouble> {
    let heard = match verdict {
        1 => {
            let token = reply.token()?.get();
            match reply.int()? {
                1 => Heard::Confirmed { token, sent },
                _ => Heard::Granted { token, at },
            }
        }
        2 => Heard::Yours {
            token: reply.token()?.get(),
            lower: reply.int()? == 1,
            at,
        },
        3 => {
            let value = reply.text()?;
            let vote = scope.decode_vote(&value, decode::kept_until(at, reply)?);
            let seen = vote.map(|(by, is_held)| Seen::Occupied { by, is_held });
            return Ok(Answer {
                heard: Heard::Queued { at },
                seen: Some(seen.unwrap_or_default()),
            });
        }
        4 => Heard::Unanswered,
        5 => {
            return Ok(Answer::not_voting(Seen::Foreign(
                errors::FOREIGN_VALUE.to_owned(),
            )));
        }
        6 => return Ok(Answer::not_voting(Seen::Full)),
        7 => {
            let left = Duration::from_micros(reply.int()?.saturating_sub(at));
            return Ok(Answer::not_voting(Seen::NotVoting(left)));
        }
        other => return Err(reply::malformed(&format!("verdict {other}"))),
    };
    Ok(Answer {
        heard,
        seen: Some(Seen::Nothing),
    })
}
