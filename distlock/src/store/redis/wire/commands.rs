//! Each command as a script: its keys and arguments (see `lua/README.md`), and how its reply is
//! read.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::config::options::Durability;
use crate::fencing::FencingToken;
use crate::protocol::trouble::{Code, Trouble};
use crate::protocol::words::{
    Ask, AskReply, Inspection, Look, LookReply, Owner, Proof, Renewal, RenewalFailure, Renewed,
    Revoked,
};
use crate::store::client_id::plain_number;
use crate::store::command::{Confirm, Inspect, Release, Revoke};
use crate::store::redis::wire::call::{Dated, Read, Scope, ScriptCall};
use crate::store::redis::wire::decode::{ends_at, held, kept_until, waiting};
use crate::store::redis::wire::encode::{Text, millis};
use crate::store::redis::wire::reply::{self, Reply};
use crate::store::redis::wire::scripts::{By, ScriptId};
use crate::store::redis::wire::trouble::{self, FOREIGN_VALUE};
use crate::util::clock::Moment;

impl ScriptCall for Ask<'_> {
    type Reply = AskReply;

    fn owner(&self) -> Option<Owner> {
        Some(self.owner)
    }

    fn asks(&self) -> bool {
        true
    }

    fn write(&self, scope: &Scope<'_>, by: By) -> Cmd {
        let mut cmd = scope.script(ScriptId::Ask, by);
        scope.names.all(&mut cmd, self.key);
        let settings = scope.settings;
        cmd.arg(scope.owner(self.owner))
            .arg(millis(self.timing.ttl()))
            .arg(scope.apply_by())
            .arg(millis(settings.fence_ttl))
            .arg(&settings.name)
            .arg(Text(format_args!(
                "{} {} {} {} {}",
                millis(self.timing.lease),
                millis(self.wait),
                settings.max_waiters,
                scope.client.as_str(),
                scope.names.channels(self.key),
            )));
        cmd
    }

    fn read(&self, scope: &Scope<'_>, sent: Moment, answer: Value) -> Read<AskReply> {
        if !reply::is_list(&answer) {
            let (token, at) = held(&reply::text(answer)?)?;
            return Dated::at(at, AskReply::Held(Proof { sent, token }));
        }
        let mut reply = Reply::list(answer)?;
        let (verdict, at) = (reply.int()?, reply.int()?);
        let foreign = || AskReply::Foreign(scope.foreign(self.key, FOREIGN_VALUE));
        let occupied = match verdict {
            2 => AskReply::Queued,
            3 => AskReply::Busy,
            4 => return Dated::at(at, AskReply::Late),
            5 => return Dated::at(at, foreign()),
            6 => AskReply::Full,
            other => return Err(reply::nonsense(&format!("verdict {other}"))),
        };
        let value = reply.text()?;
        let occupant = scope.occupant(&value, kept_until(at, &mut reply)?);
        // The script's pattern accepts more than distlock writes.
        if occupant.is_none() && !value.is_empty() {
            return Dated::at(at, foreign());
        }
        Dated::at(at, occupied(occupant))
    }

    fn foreign(&self, scope: &Scope<'_>, what: &str) -> Option<AskReply> {
        Some(AskReply::Foreign(scope.foreign(self.key, what)))
    }
}

impl ScriptCall for Confirm<'_> {
    type Reply = Option<Proof>;

    fn durability(&self) -> Durability {
        self.durability
    }

    fn write(&self, scope: &Scope<'_>, by: By) -> Cmd {
        let mut cmd = scope.script(ScriptId::Confirm, by);
        scope.names.without_fence(&mut cmd, self.key);
        cmd.arg(scope.owner(self.owner))
            .arg(millis(self.timing.ttl()));
        cmd
    }

    fn read(&self, _: &Scope<'_>, sent: Moment, answer: Value) -> Read<Option<Proof>> {
        let mut reply = Reply::list(answer)?;
        let (verdict, at) = (reply.int()?, reply.int()?);
        if verdict != 1 {
            return Dated::at(at, None);
        }
        let token = reply.token()?;
        Dated::at(at, Some(Proof { sent, token }))
    }
}

impl ScriptCall for [Renewal] {
    type Reply = Renewed;

    const RENEWS: bool = true;

    fn durability(&self) -> Durability {
        let needs = self.iter().map(|renewal| renewal.durability);
        needs.fold(Durability::NONE, Durability::and)
    }

    fn write(&self, scope: &Scope<'_>, by: By) -> Cmd {
        let mut cmd = scope.script(ScriptId::Renew, by);
        cmd.arg(self.len());
        for renewal in self {
            cmd.arg(scope.names.lock(&renewal.key));
        }
        for renewal in self {
            let Text(owner) = scope.owner(renewal.owner);
            cmd.arg(Text(format_args!("{owner} {}", renewal.token)))
                .arg(millis(renewal.timing.ttl()));
        }
        cmd
    }

    fn read(&self, _: &Scope<'_>, sent: Moment, answer: Value) -> Read<Renewed> {
        let mut reply = Reply::list(answer)?;
        let mut failures: Vec<(usize, RenewalFailure)> = Vec::new();
        while let Some(failure) = reply.next() {
            let mut failure = Reply::list(failure)?;
            let index = failure.index()?;
            // The indices must rise, because the reader of the failures passes each only once.
            let rises = failures.last().is_none_or(|(last, _)| *last < index);
            if index >= self.len() || !rises {
                return Err(reply::nonsense("a renewal's index"));
            }
            let failure = match failure.text()?.as_str() {
                "" => RenewalFailure::Gone,
                "REVOKED" => RenewalFailure::Revoked,
                error => RenewalFailure::Trouble(trouble::of_text(error)),
            };
            failures.push((index, failure));
        }
        Dated::undated(Renewed { sent, failures })
    }

    fn failures(reply: &Renewed) -> Vec<&Trouble> {
        let failures = reply.failures.iter();
        let failures = failures.filter_map(|(_, failure)| match failure {
            RenewalFailure::Trouble(trouble) => Some(trouble),
            RenewalFailure::Gone | RenewalFailure::Revoked => None,
        });
        failures.collect()
    }
}

/// The result of a release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removed {
    pub(crate) was_held: bool,
    /// There are more dead waiters than one call removes.
    pub(crate) more: bool,
}

impl ScriptCall for Release<'_> {
    type Reply = Removed;

    fn owner(&self) -> Option<Owner> {
        Some(self.owner)
    }

    fn write(&self, scope: &Scope<'_>, by: By) -> Cmd {
        let mut cmd = scope.script(ScriptId::Release, by);
        scope.names.all(&mut cmd, self.key);
        cmd.arg(scope.owner(self.owner)).arg(millis(self.keep));
        scope.of_client(&mut cmd, self.key);
        cmd
    }

    fn read(&self, _: &Scope<'_>, _: Moment, answer: Value) -> Read<Removed> {
        let (was_held, more) = match reply::text(answer)?.as_str() {
            "0" => (false, false),
            "1" => (true, false),
            "2" => (false, true),
            "3" => (true, true),
            other => return Err(reply::nonsense(&format!("{other} to a release"))),
        };
        Dated::undated(Removed { was_held, more })
    }
}

/// The reply has one entry per lock.
impl ScriptCall for [Look] {
    type Reply = Vec<LookReply>;

    fn write(&self, scope: &Scope<'_>, by: By) -> Cmd {
        let mut cmd = scope.script(ScriptId::Look, by);
        cmd.arg(4 * self.len());
        for look in self {
            scope.names.each(&mut cmd, &look.key);
        }
        // In a cluster, all entries are for one lock.
        let channels = self.first().map(|look| scope.names.channels(&look.key));
        cmd.arg(scope.client.as_str())
            .arg(&*channels.unwrap_or_default())
            .arg(millis(scope.settings.fence_ttl));
        for look in self {
            cmd.arg(look.owners.len());
            for owner in &look.owners {
                cmd.arg(scope.owner(*owner));
            }
        }
        cmd
    }

    fn read(&self, scope: &Scope<'_>, _: Moment, answer: Value) -> Read<Vec<LookReply>> {
        let mut reply = Reply::list(answer)?;
        let at = reply.int()?;
        let mut each = |look: &Look| match reply.next() {
            Some(seen) => read_look(scope, look, at, seen),
            None => Err(reply::nonsense("a look that is too short")),
        };
        let said: Result<_, Trouble> = self.iter().map(&mut each).collect();
        Dated::at(at, said?)
    }

    fn failures(reply: &Vec<LookReply>) -> Vec<&Trouble> {
        let failures = reply.iter().filter_map(|reply| match reply {
            LookReply::Failed(trouble) => Some(trouble),
            LookReply::Seen { .. } | LookReply::Foreign(_) => None,
        });
        failures.collect()
    }
}

fn read_look(scope: &Scope<'_>, look: &Look, at: u64, seen: Value) -> Result<LookReply, Trouble> {
    let foreign = |what: &str| LookReply::Foreign(scope.foreign(&look.key, what));
    if !reply::is_list(&seen) {
        let trouble = trouble::of_text(&reply::text(seen)?);
        return Ok(match trouble.code {
            Code::Foreign => foreign(&trouble.detail),
            _ => LookReply::Failed(trouble),
        });
    }
    let mut fields = Reply::list(seen)?;
    let value = fields.text()?;
    let occupant = scope.occupant(&value, ends_at(at, fields.signed()?));
    if occupant.is_none() && !value.is_empty() {
        return Ok(foreign(FOREIGN_VALUE));
    }
    let mut indices = Reply::list(fields.next().unwrap_or(Value::Nil))?;
    let mut missing = Vec::new();
    while let Some(index) = indices.next() {
        let owner = look.owners.get(Reply::one(index).index()?);
        missing.push(*owner.ok_or_else(|| reply::nonsense("a missing owner's index"))?);
    }
    Ok(LookReply::Seen { occupant, missing })
}

impl ScriptCall for Inspect<'_> {
    type Reply = Inspection;

    fn write(&self, scope: &Scope<'_>, by: By) -> Cmd {
        let mut cmd = scope.script(ScriptId::Inspect, by);
        scope.names.all(&mut cmd, self.key);
        cmd.arg(self.waiters);
        cmd
    }

    fn read(&self, scope: &Scope<'_>, _: Moment, answer: Value) -> Read<Inspection> {
        let mut reply = Reply::list(answer)?;
        let at = reply.int()?;
        let value = reply.text()?;
        let left = reply.signed()?;
        let waiters = reply.int()?;
        let last = reply.text()?;
        let is_there = reply.int()? == 1;
        let ends_at = ends_at(at, left);
        let votes = scope.scripts.are_of_quorum();
        let known = if votes {
            let vote = scope.vote(&value, ends_at);
            vote.map(|(by, is_held)| is_held.then_some(by))
        } else {
            scope.occupant(&value, ends_at).map(Some)
        };
        let is_foreign = is_there && known.is_none();
        let foreign = is_foreign.then(|| scope.foreign(self.key, FOREIGN_VALUE));
        if is_foreign && !votes {
            let said = Inspection {
                foreign,
                ..Inspection::default()
            };
            return Dated::at(at, said);
        }
        let said = Inspection {
            occupant: known.flatten(),
            // The remaining time of a lock that exists and expires.
            left: u64::try_from(left).ok().map(Duration::from_millis),
            waiters,
            waiting: waiting(scope.client, &mut reply)?,
            last_token: last.parse().ok().map(FencingToken::new),
            foreign,
            servers: Vec::new(),
        };
        Dated::at(at, said)
    }

    fn foreign(&self, scope: &Scope<'_>, what: &str) -> Option<Inspection> {
        Some(Inspection {
            foreign: Some(scope.foreign(self.key, what)),
            ..Inspection::default()
        })
    }
}

impl ScriptCall for Revoke<'_> {
    type Reply = Revoked;

    fn write(&self, scope: &Scope<'_>, by: By) -> Cmd {
        let mut cmd = scope.script(ScriptId::Revoke, by);
        scope.names.all(&mut cmd, self.key);
        cmd.arg(self.token.to_string()).arg(u8::from(self.deletes));
        scope.of_client(&mut cmd, self.key);
        cmd.arg(&scope.settings.name);
        cmd
    }

    fn read(&self, _: &Scope<'_>, _: Moment, answer: Value) -> Read<Revoked> {
        let mut reply = Reply::list(answer)?;
        let verdict = reply.int()?;
        let fence = reply.text()?;
        let newest = || {
            let token = plain_number(&fence).filter(|token| *token > 0);
            let token = token.ok_or_else(|| reply::nonsense("a revocation's token"))?;
            Ok(FencingToken::new(token))
        };
        Dated::undated(match verdict {
            0 => Revoked::NotHeld,
            1 => Revoked::Ending(newest()?),
            2 => Revoked::Deleted(newest()?),
            3 => Revoked::Connected,
            other => return Err(reply::nonsense(&format!("{other} to a revocation"))),
        })
    }
}
