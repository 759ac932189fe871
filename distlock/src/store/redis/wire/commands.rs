//! Each command as a script: its keys and arguments (see `lua/README.md`), and how its reply is
//! read. `counted` has what differs for counted locks.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::config::options::Durability;
use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, Confirmation, HolderView, Inspection,
    Proof, ReleaseReply, RenewReply, Renewal, RenewalFailure, RevokeReply,
};
use crate::protocol::once::Once;
use crate::protocol::store_error::{Code, StoreError};
use crate::store::client_id::parse_number;
use crate::store::command::{Confirm, DeleteRecord, Inspect, Release, Revoke};
use crate::store::redis::wire::call::{Decoded, ScriptCall, ScriptContext};
use crate::store::redis::wire::counted;
use crate::store::redis::wire::decode::{
    decode_fence, decode_record, decode_waiters, ends_at, kept_until,
};
use crate::store::redis::wire::encode::{ArgText, millis};
use crate::store::redis::wire::errors::{self, CONFLICT};
use crate::store::redis::wire::names::KeyKind;
use crate::store::redis::wire::reply::{self, ReplyReader};
use crate::store::redis::wire::scripts::{Form, ScriptId, ScriptRef};

impl ScriptCall for Acquire<'_> {
    type Reply = AcquireReply;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let is_counted = self.kind.is_counted();
        let once = self.once;
        let form = Form::of(is_counted, once.is_some());
        let mut cmd = context.script_in(form, ScriptId::Acquire, script_ref);
        let record = once.map(|once| &*once.selector);
        (context.names).append_all(&mut cmd, self.key, &KeyKind::of(is_counted), record);
        let settings = context.settings;
        cmd.arg(context.owner(self.owner))
            .arg(millis(self.timing.ttl()))
            .arg(context.apply_by())
            .arg(millis(settings.fence_ttl))
            .arg(&*context.holder_name(self.metadata));
        if is_counted {
            cmd.arg(counted::kind_argument(self.kind));
        }
        let rest = ArgText::new()
            .number(millis(self.timing.lease))
            .text(" ")
            .number(millis(self.wait))
            .text(" ")
            .number(settings.max_waiters.into())
            .text(" ")
            .text(context.client.as_str())
            .text(" ")
            .text(&context.names.channel_prefix(self.key));
        cmd.arg(rest);
        if let Some(Once { gap, ttl, .. }) = once {
            let (gap, ttl) = (millis(*gap), millis(*ttl));
            cmd.arg(format!("{gap} {ttl}"));
        }
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<AcquireReply> {
        if !reply::is_list(&reply) {
            let (proof, at) = context.decode_held(reply)?;
            return Ok((Some(at), AcquireReply::Held(proof)));
        }
        let mut reply = ReplyReader::from_list(reply)?;
        let (status, at) = (reply.int()?, reply.int()?);
        if self.kind.is_counted() {
            return counted::decode_acquire(self, context, (status, at), reply);
        }
        let conflict = || AcquireReply::KeyConflict(context.describe_conflict_of(self, CONFLICT));
        let occupied = match status {
            2 => AcquireReply::Queued,
            3 => AcquireReply::Busy,
            4 => return Ok((Some(at), AcquireReply::Late)),
            5 => return Ok((Some(at), conflict())),
            6 => AcquireReply::Full,
            7 => {
                let reply = match decode_record(&reply.text()?, at) {
                    Some(record) => AcquireReply::AlreadyRan(record),
                    None => AcquireReply::KeyConflict(context.describe_record_conflict(
                        self.key,
                        self.once.map_or("", |once| &once.selector),
                    )),
                };
                return Ok((Some(at), reply));
            }
            other => return Err(reply::unknown_status(other, "an acquire")),
        };
        let value = reply.text()?;
        let holder = context.decode_holder(&value, kept_until(at, &mut reply)?);
        let reply = match (status, holder) {
            // The script's pattern accepts more than distlock writes.
            (_, None) if !value.is_empty() => conflict(),
            (2, None) => AcquireReply::Unfinished,
            (_, holder) => occupied(Vec::from_iter(holder)),
        };
        Ok((Some(at), reply))
    }

    fn conflict_reply(
        &self,
        context: &ScriptContext<'_>,
        error_text: &str,
    ) -> Option<AcquireReply> {
        Some(AcquireReply::KeyConflict(
            context.describe_conflict_of(self, error_text),
        ))
    }
}

/// Several locks of one server.
impl ScriptCall for [Acquire<'_>] {
    type Reply = Option<Proof>;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let mut cmd = context.script(ScriptId::AcquireAll, script_ref);
        cmd.arg(3 * self.len());
        for request in self {
            let kinds = [KeyKind::Lock, KeyKind::Queue, KeyKind::Fence];
            context.names.append(&mut cmd, request.key, &kinds);
        }
        let ttl = self.iter().map(|request| request.timing.ttl());
        // All requests have the same options.
        let metadata = self.first().and_then(|request| request.metadata);
        cmd.arg(millis(ttl.max().unwrap_or_default()))
            .arg(context.apply_by())
            .arg(millis(context.settings.fence_ttl))
            .arg(&*context.holder_name(metadata));
        for request in self {
            cmd.arg(context.owner(request.owner));
        }
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<Option<Proof>> {
        if !reply::is_list(&reply) {
            let (proof, at) = context.decode_held(reply)?;
            return Ok((Some(at), Some(proof)));
        }
        let mut reply = ReplyReader::from_list(reply)?;
        match (reply.int()?, reply.int()?) {
            (3 | 4, at) => Ok((Some(at), None)),
            (other, _) => Err(reply::unknown_status(other, "an acquire of several locks")),
        }
    }
}

impl ScriptCall for Confirm<'_> {
    type Reply = Confirmation;

    fn durability(&self) -> Durability {
        self.durability
    }

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let is_counted = self.kind.is_counted();
        let form = Form::of(is_counted, self.once.is_some());
        let mut cmd = context.script_in(form, ScriptId::Confirm, script_ref);
        let kinds: &[_] = if is_counted {
            // The holders, and the entries of the waiters.
            &[KeyKind::Lock, KeyKind::Queue]
        } else {
            &[KeyKind::Lock, KeyKind::Entry]
        };
        let record = self.once.map(|once| &*once.selector);
        context.names.append_all(&mut cmd, self.key, kinds, record);
        cmd.arg(context.owner(self.owner))
            .arg(millis(self.timing.ttl()));
        if is_counted {
            cmd.arg(context.client.as_str());
        }
        if let Some(once) = self.once {
            cmd.arg(millis(once.gap));
        }
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<Confirmation> {
        let mut reply = ReplyReader::from_list(reply)?;
        let (status, at) = (reply.int()?, reply.int()?);
        let confirmation = match status {
            1 => Confirmation::Held(context.proof(reply.token()?)),
            2 => match decode_record(&reply.text()?, at) {
                Some(record) => Confirmation::AlreadyRan(record),
                None => return Err(reply::malformed("a success record")),
            },
            _ => Confirmation::NotHeld,
        };
        Ok((Some(at), confirmation))
    }
}

impl ScriptCall for [Renewal] {
    type Reply = RenewReply;

    const RENEWS: bool = true;

    fn durability(&self) -> Durability {
        let needs = self.iter().map(|renewal| renewal.durability);
        needs.fold(Durability::NONE, Durability::and)
    }

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let is_counted = self.first().is_some_and(|first| first.kind.is_counted());
        let form = Form::of(is_counted, false);
        let mut cmd = context.script_in(form, ScriptId::Renew, script_ref);
        cmd.arg(self.len());
        for renewal in self {
            cmd.arg(context.names.lock(&renewal.key));
        }
        for renewal in self {
            let owner = context.owner(renewal.owner);
            cmd.arg(owner.text(" ").number(renewal.token.get()))
                .arg(millis(renewal.timing.ttl()));
        }
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<RenewReply> {
        let mut reply = ReplyReader::from_list(reply)?;
        let mut failures: Vec<(usize, RenewalFailure)> = Vec::new();
        while let Some(failure) = reply.next() {
            let mut failure = ReplyReader::from_list(failure)?;
            let index = failure.index()?;
            // Rejects duplicate and unordered indices: the script reports each hold at most once,
            // in order.
            let rises = failures.last().is_none_or(|(last, _)| *last < index);
            if index >= self.len() || !rises {
                return Err(reply::malformed(
                    "a renewal index that is out of range or out of order",
                ));
            }
            let failure = match failure.text()?.as_str() {
                "" => RenewalFailure::Gone,
                "REVOKED" => RenewalFailure::Revoked,
                error => RenewalFailure::Error(errors::classify_text(error)),
            };
            failures.push((index, failure));
        }
        let sent_at = context.sent_at;
        Ok((None, RenewReply { sent_at, failures }))
    }

    fn failures(reply: &RenewReply) -> Vec<&StoreError> {
        let failures = reply.failures.iter();
        let failures = failures.filter_map(|(_, failure)| match failure {
            RenewalFailure::Error(error) => Some(error),
            RenewalFailure::Gone | RenewalFailure::Revoked => None,
        });
        failures.collect()
    }
}

impl ScriptCall for Release<'_> {
    /// With true if there are more dead waiters than one call removes, or more grants than one call
    /// makes.
    type Reply = (ReleaseReply, bool);

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let is_counted = self.kind.is_counted();
        let once = self.success.map(|(once, _)| once);
        let form = Form::of(is_counted, once.is_some());
        let mut cmd = context.script_in(form, ScriptId::Release, script_ref);
        let record = once.map(|once| &*once.selector);
        (context.names).append_all(&mut cmd, self.key, &KeyKind::of(is_counted), record);
        cmd.arg(context.owner(self.owner))
            .arg(millis(self.keep_for));
        context.append_client(&mut cmd, self.key);
        if let Some((Once { gap, ttl, .. }, token)) = self.success {
            let (gap, ttl) = (millis(*gap), millis(*ttl));
            cmd.arg(format!("{token} {gap} {ttl}"));
        }
        cmd
    }

    fn decode(&self, _: &ScriptContext<'_>, reply: Value) -> Decoded<Self::Reply> {
        let text = reply::text(reply)?;
        let recorded = (self.success).and_then(|_| text.strip_suffix(" recorded"));
        let (was_held, has_more) = match recorded.unwrap_or(&text) {
            "0" => (false, false),
            "1" => (true, false),
            "2" => (false, true),
            "3" => (true, true),
            other => return Err(reply::unknown_status(other, "a release")),
        };
        let released = ReleaseReply {
            was_held,
            repeat_after: None,
            is_recorded: recorded.is_some(),
        };
        Ok((None, (released, has_more)))
    }

    /// A counted lock is not at keys that are in use as another kind.
    fn conflict_reply(&self, _: &ScriptContext<'_>, error_text: &str) -> Option<Self::Reply> {
        let is_other_kind = self.kind.is_counted() && error_text.starts_with("WRONGTYPE");
        is_other_kind.then_some((ReleaseReply::default(), false))
    }
}

/// The reply has one entry per lock.
impl ScriptCall for [CheckQueue] {
    type Reply = Vec<CheckQueueReply>;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let is_counted = self.first().is_some_and(|first| first.is_counted);
        let form = Form::of(is_counted, false);
        let mut cmd = context.script_in(form, ScriptId::CheckQueue, script_ref);
        cmd.arg(4 * self.len());
        for check in self {
            (context.names).append(&mut cmd, &check.key, &KeyKind::of(is_counted));
        }
        // In a cluster, all entries are for one lock.
        let channels = self
            .first()
            .map(|check| context.names.channel_prefix(&check.key));
        cmd.arg(context.client.as_str())
            .arg(&*channels.unwrap_or_default())
            .arg(millis(context.settings.fence_ttl));
        for check in self {
            cmd.arg(check.owners.len());
            for owner in &check.owners {
                cmd.arg(context.owner(*owner));
            }
        }
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<Self::Reply> {
        let mut reply = ReplyReader::from_list(reply)?;
        let at = reply.int()?;
        let mut each = |check: &CheckQueue| match reply.next() {
            Some(entry) => decode_queue_check(context, check, at, entry),
            None => Err(reply::malformed("a queue check that is too short")),
        };
        let replies: Result<_, StoreError> = self.iter().map(&mut each).collect();
        Ok((Some(at), replies?))
    }

    fn failures(reply: &Vec<CheckQueueReply>) -> Vec<&StoreError> {
        let failures = reply.iter().filter_map(|reply| match reply {
            CheckQueueReply::Failed(error) => Some(error),
            CheckQueueReply::Checked { .. } | CheckQueueReply::KeyConflict(_) => None,
        });
        failures.collect()
    }
}

fn decode_queue_check(
    context: &ScriptContext<'_>,
    check: &CheckQueue,
    at: u64,
    entry: Value,
) -> Result<CheckQueueReply, StoreError> {
    let conflict = |error_text: &str| {
        CheckQueueReply::KeyConflict(context.describe_conflict(&check.key, error_text))
    };
    if !reply::is_list(&entry) {
        let error = errors::classify_text(&reply::text(entry)?);
        return Ok(match error.code {
            Code::KeyConflict => conflict(&error.detail),
            _ => CheckQueueReply::Failed(error),
        });
    }
    let mut fields = ReplyReader::from_list(entry)?;
    let value = fields.text()?;
    if check.is_counted {
        return counted::decode_queue_check(context, check, at, &value, fields);
    }
    let holder = context.decode_holder(&value, ends_at(at, fields.signed()?));
    if holder.is_none() && !value.is_empty() {
        return Ok(conflict(CONFLICT));
    }
    let missing = counted::decode_owners(check, fields.next())?;
    Ok(check.reply_of_mutex(holder, missing))
}

impl ScriptCall for Inspect<'_> {
    type Reply = Inspection;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let mut cmd = context.script(ScriptId::Inspect, script_ref);
        (context.names).append_all(&mut cmd, self.key, &KeyKind::MUTEX, Some(""));
        cmd.arg(self.max_listed);
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<Inspection> {
        let mut reply = ReplyReader::from_list(reply)?;
        let at = reply.int()?;
        let value = reply.text()?;
        let remaining = reply.signed()?;
        let queue_length = reply.int()?;
        let fence = decode_fence(&reply.text()?);
        let exists = reply.int()? == 1;
        let record_text = reply.text()?;
        let record = decode_record(&record_text, at);
        let is_foreign_record = record.is_none() && !record_text.is_empty();
        let known = context.decode_holder(&value, ends_at(at, remaining));
        // A foreign fence blocks the next acquire, and does not hide a holder.
        if known.is_none() && (exists || fence.is_none()) {
            let conflict = self.conflict_reply(context, CONFLICT);
            return Ok((Some(at), conflict.unwrap_or_default()));
        }
        // The remaining time of a lock that exists and expires.
        let expires_in = u64::try_from(remaining).ok().map(Duration::from_millis);
        let holder = known.map(|holder| HolderView {
            expires_in,
            ..holder
        });
        let inspection = Inspection {
            kind: (holder.is_some() || queue_length > 0).then_some(LockKind::Mutex),
            holders: Vec::from_iter(holder),
            expires_in,
            queue_length,
            waiters: decode_waiters(context.client, &mut reply, 3)?,
            last_token: fence.flatten(),
            record,
            record_conflict: is_foreign_record
                .then(|| context.describe_record_conflict(self.key, "")),
            key_conflict: None,
            servers: Vec::new(),
        };
        Ok((Some(at), inspection))
    }

    fn conflict_reply(&self, context: &ScriptContext<'_>, error_text: &str) -> Option<Inspection> {
        Some(Inspection {
            key_conflict: Some(context.describe_conflict(self.key, error_text)),
            ..Inspection::default()
        })
    }
}

impl ScriptCall for DeleteRecord<'_> {
    type Reply = Result<bool, String>;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let mut cmd = context.script_in(Form::Once, ScriptId::DeleteRecord, script_ref);
        (context.names).append_all(&mut cmd, self.key, &[], Some(self.selector));
        cmd
    }

    fn decode(&self, _: &ScriptContext<'_>, reply: Value) -> Decoded<Self::Reply> {
        let mut reply = ReplyReader::from_list(reply)?;
        Ok((None, Ok(reply.int()? == 1)))
    }

    fn conflict_reply(&self, context: &ScriptContext<'_>, _: &str) -> Option<Self::Reply> {
        Some(Err(
            context.describe_record_conflict(self.key, self.selector)
        ))
    }
}

impl ScriptCall for Revoke<'_> {
    type Reply = RevokeReply;

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let form = Form::of(self.is_counted, false);
        let mut cmd = context.script_in(form, ScriptId::Revoke, script_ref);
        (context.names).append_all(&mut cmd, self.key, &KeyKind::of(self.is_counted), None);
        let tokens: Vec<_> = self.tokens.iter().map(FencingToken::to_string).collect();
        cmd.arg(tokens.join(" ")).arg(u8::from(self.delete));
        context.append_client(&mut cmd, self.key);
        cmd.arg(&context.settings.display_name);
        cmd
    }

    fn decode(&self, _: &ScriptContext<'_>, reply: Value) -> Decoded<RevokeReply> {
        let mut reply = ReplyReader::from_list(reply)?;
        let (status, token_text) = if self.is_counted {
            let token = reply.text()?;
            (counted::revoke_status(&mut reply)?, token)
        } else {
            (reply.int()?, reply.text()?)
        };
        let new_token = || {
            let token = parse_number(&token_text).filter(|token| *token > 0);
            let token = token.ok_or_else(|| reply::malformed("an invalid revocation token"))?;
            Ok(FencingToken::new(token))
        };
        let revoked = match status {
            0 => RevokeReply::NotHeld,
            1 => RevokeReply::Revoked(new_token()?),
            2 => RevokeReply::Deleted(new_token()?),
            3 => RevokeReply::Connected,
            other => return Err(reply::unknown_status(other, "a revocation")),
        };
        Ok((None, revoked))
    }
}
