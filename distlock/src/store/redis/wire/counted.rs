//! Counted locks: the arguments and replies that differ from those of mutexes.

use redis::{Cmd, Value};

use crate::config::options::Durability;
use crate::error::LockKind;
use crate::protocol::kind::Kind;
use crate::protocol::messages::{Downgrade, Proof};
use crate::store::redis::wire::call::{Decoded, ScriptCall, ScriptContext};
use crate::store::redis::wire::decode::{self, ReplyReader};
use crate::store::redis::wire::encode::{ArgText, millis};
use crate::store::redis::wire::names::KeyKind;
use crate::store::redis::wire::scripts::{ScriptForm, ScriptId, ScriptRef};
use crate::store::redis::wire::status::Status;

/// Returns the argument with the kind, capacity and weight of a request.
pub(super) fn kind_argument(kind: Kind) -> String {
    let name = match kind.lock_kind() {
        LockKind::Semaphore { .. } => "permits",
        LockKind::Mutex | LockKind::ReadWrite => "rw",
    };
    format!("{name} {} {}", kind.capacity(), kind.weight())
}

impl ScriptCall for Downgrade<'_> {
    /// With true if further waiters can be served: the command is repeated.
    type Reply = (Option<Proof>, bool);

    fn durability(&self) -> Durability {
        self.target.durability
    }

    fn encode(&self, context: &ScriptContext<'_>, script_ref: ScriptRef) -> Cmd {
        let mut cmd = context.script_in(ScriptForm::Counted, ScriptId::Downgrade, script_ref);
        context
            .names
            .append_all(&mut cmd, self.target.key, &KeyKind::DECLARED, None);
        let rest = ArgText::new().number(millis(context.settings.fence_ttl));
        cmd.arg(context.owner(self.target.owner))
            .arg(self.token.to_string())
            .arg(millis(self.target.timing.ttl()))
            .arg(context.names.append_channels(rest, self.target.key));
        cmd
    }

    fn decode(&self, context: &ScriptContext<'_>, reply: Value) -> Decoded<Self::Reply> {
        let mut reply = ReplyReader::from_list(reply)?;
        let (status, at) = (reply.status()?, reply.time()?);
        let downgraded = match status {
            Status::Held => (Some(context.proof(reply.token()?)), reply.int()? == 1),
            Status::NotHeld => (None, false),
            _ => {
                return Err(decode::malformed(
                    "a status that is not that of a downgrade",
                ));
            }
        };
        Ok((Some(at), downgraded))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::fencing::FencingToken;
    use crate::key::LockKey;
    use crate::protocol::messages::{Acquire, AcquireReply, HolderView, OwnerId, Target};
    use crate::protocol::timing::Timing;
    use crate::store::client_id::ClientId;
    use crate::store::redis::wire::names::Names;
    use crate::store::redis::wire::scripts::Scripts;
    use crate::store::{EventSink, Settings};
    use crate::util::clock::{BootInstant, ServerTime};

    const STATE: &str = "3 permits 5 3 0 2000 900";

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn replies_name_the_kind_and_the_holders_that_have_not_expired() {
        let (scripts, names) = (Scripts::bundled(), Names::new("n"));
        let client = ClientId::new();
        let has_event = Arc::new(AtomicBool::new(false));
        let reported = has_event.clone();
        let events: EventSink = Arc::new(move |_| reported.store(true, Ordering::Relaxed));
        let context = ScriptContext {
            scripts: &scripts,
            names: &names,
            settings: &Settings::named("a name"),
            client: &client,
            is_proxied: false,
            run_id: "",
            sent_at: BootInstant(1),
            apply_by: &|| ServerTime(0),
            events: &events,
        };
        let request = Acquire {
            target: Target {
                key: &LockKey::new("k").unwrap(),
                kind: Kind::Permits {
                    permits: 3,
                    weight: 1,
                },
                owner: OwnerId(7),
                timing: Timing::new(Duration::from_secs(9)),
                durability: Durability::NONE,
            },
            wait: Duration::ZERO,
            metadata: None,
            once: None,
        };
        let owner = format!("{}:7", client.as_str());
        let decode = |status: &str, state: &str| {
            let fields = [
                state,
                "state",
                state,
                &owner,
                "k 5000 4 900 2 800 a name of words\u{1f}and its job",
                "0:1",
                "h 1000 1 800 1 700 expired",
                "0:2",
                "h 5000 not a record",
            ];
            let start = [text(status), Value::Int(1_000)];
            request.decode(
                &context,
                Value::Array([&start[..], &fields.map(text)].concat()),
            )
        };
        let holders = vec![HolderView {
            local_owner: Some(OwnerId(7)),
            this_process: true,
            token: FencingToken::new(900),
            weight: 2,
            since: ServerTime(800),
            expires_in: Some(Duration::from_millis(4)),
            kept_until: Some(ServerTime(5_000)),
            client_name: "a name of words".into(),
            metadata: Some("and its job".into()),
        }];
        let existing = LockKind::Semaphore { permits: 5 };
        for (status, state, expected) in [
            ("queued", STATE, Some(AcquireReply::Queued(holders.clone()))),
            ("unfinished", "", Some(AcquireReply::Unfinished)),
            ("busy", "", Some(AcquireReply::Busy(holders.clone()))),
            ("late", "", Some(AcquireReply::Late)),
            ("full", STATE, Some(AcquireReply::Full(holders.clone()))),
            (
                "other_kind",
                STATE,
                Some(AcquireReply::WrongKind { existing, holders }),
            ),
            ("other_kind", "4 permits 5", None),
            ("no word of ours", STATE, None),
        ] {
            let reply = decode(status, state).ok().map(|(_, reply)| reply);
            assert_eq!(
                has_event.swap(false, Ordering::Relaxed),
                state == STATE && expected.is_some(),
                "{status} {state}"
            );
            assert_eq!(reply, expected, "{status} {state}");
        }
    }
}
