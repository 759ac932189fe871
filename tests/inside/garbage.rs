//! Whatever a server replies or pushes: nothing panics, and nothing becomes a hold that the bytes
//! do not prove.
//!
//! What they prove is judged by [`oracle`], which shares nothing with the code that reads them.
//! What a whole manager makes of such bytes on its connections is shown by `tests/fuzz`.

use std::cell::Cell;
use std::fmt::Debug;
use std::time::Duration;

use distlock_tests::garbage::{self, Frame, Verb, oracle};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use redis::{PushKind, RedisResult, Value};

use crate::config::options::Durability;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::timing::Timing;
use crate::protocol::words::{Ask, AskReply, Look, LookReply, Owner, Renewal, RenewalFailure};
use crate::store::Settings;
use crate::store::client_id::ClientId;
use crate::store::command::{Confirm, Inspect, Release};
use crate::store::redis::wire::call::{Scope, ScriptCall};
use crate::store::redis::wire::names::Names;
use crate::store::redis::wire::reply::payload;
use crate::store::redis::wire::scripts::Scripts;
use crate::util::clock::Moment;
use crate::util::random::SystemRandom;

/// Of each kind of reply.
const CASES: u32 = 2_000;
const LEASE: Duration = Duration::from_secs(30);
const SENT: Moment = Moment(5_000_000_000);

/// The owners of these tests.
const OWNERS: [Owner; 3] = [7, 8, 123_456];

/// A client that reads replies.
struct Reader {
    scripts: Scripts,
    names: Names,
    settings: Settings,
    client: ClientId,
    key: LockKey,
}

impl Reader {
    fn new() -> Self {
        Reader {
            scripts: Scripts::ours(),
            names: Names::new("distlock"),
            settings: Settings::named("me"),
            client: ClientId::new(&SystemRandom),
            key: LockKey::new("k").unwrap(),
        }
    }

    fn client(&self) -> &str {
        self.client.as_str()
    }

    fn scope(&self) -> Scope<'_> {
        Scope {
            scripts: &self.scripts,
            names: &self.names,
            settings: &self.settings,
            client: &self.client,
            run: "",
            apply_by: 0,
        }
    }

    /// Reads a reply to a script; `None` is an error.
    fn read<S: ScriptCall + ?Sized>(&self, script: &S, reply: &Frame) -> Option<S::Reply> {
        let value = decode(reply).ok()?;
        let read = script.read(&self.scope(), SENT, value);
        read.ok().map(|dated| dated.said)
    }

    /// Whom garbage is made for.
    fn names(&self) -> garbage::Names {
        let ask = |owner| format!("{}:{owner}", self.client());
        let locks = ["{k}", "{a}:b c", "{k}"].map(|lock| format!("distlock:lock:{lock}"));
        garbage::Names {
            client: self.client().to_owned(),
            asks: OWNERS.map(ask).into_iter().zip(locks).collect(),
        }
    }

    fn replies(&self, verb: Verb, locks: usize) -> BoxedStrategy<Frame> {
        garbage::reply(verb, locks, &self.names())
    }
}

/// Reads bytes as the connections do.
fn decode(reply: &Frame) -> RedisResult<Value> {
    redis::parse_redis_value(&reply.encode())?.extract_error()
}

/// Checks a property of many values; it returns whether it judged something as right.
fn check<T: Debug>(
    strategy: BoxedStrategy<T>,
    property: impl Fn(&T) -> Result<bool, TestCaseError>,
) {
    let config = ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    };
    let right = Cell::new(0);
    let result = TestRunner::new(config).run(&strategy, |value| {
        right.set(right.get() + u32::from(property(&value)?));
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, input)) => panic!("{why}\nthe least input: {input:?}"),
        Err(error) => panic!("{error}"),
    }
    let right = right.get();
    assert!(
        (CASES / 50..CASES - CASES / 50).contains(&right),
        "{right} of {CASES} were right: the other ones are not tested"
    );
}

#[test]
fn an_ask_is_held_only_if_the_reply_says_so() {
    let reader = Reader::new();
    let ask = Ask {
        key: &reader.key,
        owner: OWNERS[0],
        timing: Timing::new(LEASE),
        durability: Durability::NONE,
        wait: LEASE,
    };
    check(reader.replies(Verb::Ask, 1), |reply| {
        let proven = oracle::held(reply);
        let field = |at| reply.as_array().and_then(|items: &[Frame]| items.get(at));
        let verdict = field(0).and_then(Frame::as_int);
        let (read, occupant) = match reader.read(&ask, reply) {
            Some(AskReply::Held(proof)) => {
                prop_assert_eq!(Some(proof.token.into()), proven);
                prop_assert_eq!(proof.sent, SENT);
                return Ok(true);
            }
            Some(AskReply::Queued(occupant)) => (Some(2), occupant),
            Some(AskReply::Busy(occupant)) => (Some(3), occupant),
            Some(AskReply::Full(occupant)) => (Some(6), occupant),
            Some(AskReply::Late) => (Some(4), None),
            Some(AskReply::Foreign(_)) | None => (verdict, None),
        };
        prop_assert_eq!(proven, None, "a hold was not seen");
        prop_assert_eq!(read, verdict);
        if let Some(ours) = occupant.and_then(|occupant| occupant.ours) {
            let value = field(2).and_then(Frame::as_text).unwrap_or_default();
            prop_assert_eq!(Some(ours), oracle::owner_of_value(reader.client(), value));
        }
        Ok(false)
    });
}

#[test]
fn a_confirmation_proves_what_it_says() {
    let reader = Reader::new();
    let confirm = Confirm {
        key: &reader.key,
        owner: OWNERS[0],
        timing: Timing::new(LEASE),
        durability: Durability::NONE,
    };
    check(reader.replies(Verb::Confirm, 1), |reply| {
        let proof = reader.read(&confirm, reply).flatten();
        let believed = proof.map(|proof| proof.token.into());
        prop_assert_eq!(believed, oracle::confirmed(reply));
        Ok(believed.is_some())
    });
}

#[test]
fn a_renewal_extends_only_what_the_reply_leaves_out() {
    let reader = Reader::new();
    let batch = OWNERS.map(|owner| Renewal {
        key: reader.key.clone(),
        owner,
        token: FencingToken::new(5),
        timing: Timing::new(LEASE),
        durability: Durability::NONE,
    });
    check(reader.replies(Verb::Renew, batch.len()), |reply| {
        let failed = reader.read(&batch[..], reply).map(|renewed| {
            let failures = renewed.failures.into_iter();
            let failures = failures.map(|(index, how)| (index, how == RenewalFailure::Gone));
            failures.collect::<Vec<_>>()
        });
        prop_assert_eq!(&failed, &oracle::failures(reply, batch.len()));
        Ok(failed.is_some())
    });
}

#[test]
fn a_look_finds_ours_only_where_it_is_written() {
    let reader = Reader::new();
    let look = |key, owners: &[Owner]| Look {
        key: LockKey::new(key).unwrap(),
        owners: owners.to_vec(),
    };
    let looks = [look("k", &OWNERS[..2]), look("{other}:k", &OWNERS[2..])];
    check(reader.replies(Verb::Look, looks.len()), |reply| {
        let Some(replies) = reader.read(&looks[..], reply) else {
            return Ok(false);
        };
        prop_assert_eq!(replies.len(), looks.len());
        let mut found = false;
        for ((at, look), seen) in (1..).zip(&looks).zip(replies) {
            let LookReply::Seen { occupant, missing } = seen else {
                continue;
            };
            let item = reply.as_array().and_then(|items| items.get(at));
            let ours = occupant.and_then(|occupant| occupant.ours);
            prop_assert_eq!(ours, oracle::ours_seen(reader.client(), item));
            prop_assert_eq!(Some(missing), oracle::missing(item, &look.owners));
            found = true;
        }
        Ok(found)
    });
}

#[test]
fn an_inspection_reads_anything() {
    let reader = Reader::new();
    let inspect = Inspect {
        key: &reader.key,
        waiters: 3,
    };
    check(reader.replies(Verb::Inspect, 1), |reply| {
        let inspection = reader.read(&inspect, reply);
        if let Some(occupant) = inspection.as_ref().and_then(|read| read.occupant.as_ref()) {
            prop_assert!(!occupant.holder().to_string().is_empty());
            let value = reply.as_array().and_then(|items| items.get(1)?.as_text());
            let ours = oracle::owner_of_value(reader.client(), value.unwrap_or_default());
            prop_assert_eq!(occupant.ours, ours);
        }
        Ok(inspection.is_some())
    });
}

#[test]
fn a_release_reads_what_it_says() {
    let reader = Reader::new();
    let release = Release {
        key: &reader.key,
        owner: OWNERS[0],
        keep: Duration::ZERO,
    };
    check(reader.replies(Verb::Release, 1), |reply| {
        let removed = reader.read(&release, reply);
        let said = removed.map(|said| u8::from(said.was_held) + 2 * u8::from(said.more));
        let digit = reply
            .as_text()
            .filter(|text| ["0", "1", "2", "3"].contains(text));
        prop_assert_eq!(said, digit.and_then(|digit| digit.parse().ok()));
        Ok(said.is_some())
    });
}

#[test]
fn a_push_grants_only_what_it_says() {
    let reader = Reader::new();
    check(garbage::push(&reader.names()), |pushed| {
        let message = match redis::parse_redis_value(&pushed.encode()) {
            Ok(Value::Push {
                kind: PushKind::Message | PushKind::SMessage,
                data,
            }) => data,
            _ => Vec::new(),
        };
        let read = |text| reader.scope().grant(text, |_| Some(SENT));
        let granted = payload(&message).and_then(read);
        let expected = oracle::granted(reader.client(), pushed);
        if let (Some(granted), Some(expected)) = (&granted, &expected) {
            let longest = Duration::from_millis(expected.lease).min(Duration::from_secs(1));
            prop_assert!(granted.lease <= longest, "{:?}", granted.lease);
        }
        let granted = granted.map(|grant| {
            let key = grant.key.as_str().to_owned();
            (grant.owner, u64::from(grant.token), key)
        });
        let expected = expected.map(|says| (says.owner, says.token, says.key));
        prop_assert_eq!(&granted, &expected);
        Ok(granted.is_some())
    });
}
