//! Whatever a server answers or pushes: nothing panics, and nothing becomes a hold that the bytes do not prove.
//!
//! The answers go through a socket, so that the client library reads them too. What they prove is judged by
//! [`oracle`], which shares nothing with the code that reads them.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use distlock_tests::garbage::{Frame, Impostor, Reaction, edge_number, junk, nearly, oracle};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{TestError, TestRunner};
use tokio::runtime::Runtime;

use super::*;
use crate::config::options::Durability;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::rules::Rules;
use crate::protocol::timing::Timing;
use crate::protocol::words::{Grant, Inspection, Look, LookReply, Owner, Renewal, RenewalFailure};
use crate::store::client_id::ClientId;
use crate::store::command::{Confirm, Inspect, Release};
use crate::store::redis::conn::group::Group;
use crate::store::redis::transport::sockets::Sockets;
use crate::store::redis::transport::url::Place;
use crate::store::redis::wire::scripts::Scripts;
use crate::store::{EventSink, Settings};
use crate::util::clock::BootClock;
use crate::util::random::SystemRandom;

/// Of each kind of answer.
const CASES: u32 = 2_000;
const WITHIN: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(30);

/// The owners of these tests.
const OWNERS: [Owner; 3] = [7, 8, 123_456];

/// A client whose server answers every script with the same bytes.
struct Bench {
    runtime: Runtime,
    node: Node,
    key: LockKey,
    answer: Arc<Mutex<Vec<u8>>>,
    grants: Arc<Mutex<Vec<Grant>>>,
    impostor: Impostor,
}

impl Bench {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let answer = Arc::new(Mutex::new(Vec::new()));
        let next = answer.clone();
        let impostor = Impostor::start(move |_, call| {
            call.map(|call| Reaction {
                bytes: call.reply(&lock(&next)),
                close: false,
            })
        });
        let grants: Arc<Mutex<Vec<Grant>>> = Arc::default();
        let granted = grants.clone();
        let events: EventSink = Arc::new(move |event| {
            if let StoreEvent::Granted(grant) = event {
                lock(&granted).push(grant);
            }
        });
        let config = RedisConfig::parse(&impostor.url(), "distlock", WITHIN).unwrap();
        let client = Client {
            id: ClientId::new(&SystemRandom),
            settings: Settings::named("me"),
            clock: Arc::new(BootClock),
            random: Arc::new(SystemRandom),
            events,
            is_idle: Arc::new(|| false),
            scripts: Arc::new(Scripts::ours()),
            lane_after: 1,
            rules: Rules::in_force(),
            group: Group::Single,
            way: |sockets| Arc::new(sockets),
        };
        let Place::One(to) = &config.place else {
            panic!("an impostor is one server");
        };
        let sockets = Arc::new(Sockets::new(&config, to));
        let connecting = Node::connect(&config, sockets, client);
        let (node, _) = runtime.block_on(connecting).unwrap();
        Bench {
            runtime,
            node,
            key: LockKey::new("k").unwrap(),
            answer,
            grants,
            impostor,
        }
    }

    fn client(&self) -> String {
        self.node.shared.id().as_str().to_owned()
    }

    /// One operation, answered so.
    fn run<T>(&self, answer: &[Frame], operation: impl AsyncFnOnce(&Node) -> T) -> T {
        *lock(&self.answer) = answer.iter().flat_map(Frame::encode).collect();
        self.runtime.block_on(async {
            // Bytes that no RESP can contain cost the connection.
            self.node.commands.ready().await;
            self.node.renewals.ready().await;
            let result = operation(&self.node).await;
            // The reply to another request costs it as well, which is noticed here.
            tokio::task::yield_now().await;
            result
        })
    }

    /// Texts that could be taken for something of ours.
    fn texts(&self) -> Vec<String> {
        let client = self.client();
        let other = "0123456789abcdef0123456789abcdef";
        let mut owners: Vec<String> = OWNERS.map(|owner| format!("{client}:{owner}")).to_vec();
        for number in [
            "",
            "+7",
            "07",
            "-7",
            "7 ",
            "7:7",
            "18446744073709551616",
            "٧",
            "9",
        ] {
            owners.push(format!("{client}:{number}"));
        }
        owners.extend([
            format!("{other}:7"),
            client.to_uppercase() + ":7",
            format!("{}:7", &client[..24]),
            "x:7".into(),
        ]);
        let values = [
            "1700 30250 1700 name",
            "01700 30250 1700 name",
            "0 1 1 n",
            "-1 1 1 n",
            "1 1 1",
            "1700 x 1700 n",
            "+1 +1 +1 \u{1b}[2J",
        ];
        let values = |begin| {
            let of = move |owner: &String| values.map(|value| format!("{begin}{owner} {value}"));
            owners.iter().flat_map(of)
        };
        let mut texts: Vec<String> = values("2 ").chain(values("2 ")).chain(values("")).collect();
        texts.push("held 7 7".into());
        texts.extend(owners);
        texts
    }

    fn ask(&self, answer: Frame) -> Result<AskReply, Trouble> {
        self.run(&[answer], async |node| {
            let ask = Ask {
                key: &self.key,
                owner: 7,
                timing: Timing::new(LEASE),
                durability: Durability::NONE,
                wait: LEASE,
            };
            node.ask(&node.home()?, &ask, WITHIN).await
        })
    }

    fn release(&self) -> Release<'_> {
        Release {
            key: &self.key,
            owner: OWNERS[0],
            keep: Duration::ZERO,
        }
    }

    fn inspect(&self) -> Inspect<'_> {
        Inspect {
            key: &self.key,
            waiters: 0,
        }
    }

    fn renewals(&self) -> Vec<Renewal> {
        let renewal = |owner| Renewal {
            key: self.key.clone(),
            owner,
            token: FencingToken::new(5),
            timing: Timing::new(LEASE),
            durability: Durability::NONE,
        };
        OWNERS.map(renewal).to_vec()
    }

    fn looks(&self) -> [Look; 2] {
        let other = LockKey::new("{other}:k").unwrap();
        [
            Look {
                key: self.key.clone(),
                owners: OWNERS[..2].to_vec(),
            },
            Look {
                key: other,
                owners: OWNERS[2..].to_vec(),
            },
        ]
    }
}

/// Runs a property, and says how often it judged something as right.
fn check<T: std::fmt::Debug>(
    strategy: BoxedStrategy<T>,
    property: impl Fn(T) -> Result<bool, TestCaseError>,
) {
    let config = ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    };
    let right = RefCell::new(0);
    let result = TestRunner::new(config).run(&strategy, |value| {
        *right.borrow_mut() += u32::from(property(value)?);
        Ok(())
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, input)) => panic!("{why}\nthe least input: {input:?}"),
        Err(error) => panic!("{error}"),
    }
    let right = right.into_inner();
    assert!(
        (CASES / 50..CASES - CASES / 50).contains(&right),
        "{right} of {CASES} were right: the other ones are not tested"
    );
}

fn now() -> BoxedStrategy<Frame> {
    prop_oneof![3 => Just(Frame::Int(Impostor::micros())), 1 => edge_number().prop_map(Frame::Int)]
        .boxed()
}

fn number() -> BoxedStrategy<Frame> {
    prop_oneof![1 => (1..i64::MAX).prop_map(Frame::Int), 1 => edge_number().prop_map(Frame::Int)]
        .boxed()
}

fn text(texts: &[String]) -> BoxedStrategy<Frame> {
    prop_oneof![9 => select(texts.to_vec()), 1 => Just(String::new())]
        .prop_map(Frame::text)
        .boxed()
}

/// `held token now`, or nearly.
fn held() -> BoxedStrategy<Frame> {
    let number = || {
        prop_oneof![
            4 => (1..u64::MAX).prop_map(|number| number.to_string()),
            1 => edge_number().prop_map(|number| number.to_string()),
            1 => select(vec!["", "0", "07", "+7", "7 7", "18446744073709551616", "x", "٧"]).prop_map(str::to_owned),
        ]
    };
    let first =
        select(vec!["held "; 8]).prop_union(select(vec!["held", "Held ", " held ", "held  ", ""]));
    (first, number(), prop::option::of(number()))
        .prop_map(|(first, token, now)| match now {
            Some(now) => Frame::text(format!("{first}{token} {now}")),
            None => Frame::text(format!("{first}{token}")),
        })
        .boxed()
}

#[test]
fn an_ask_is_held_only_if_the_reply_says_so() {
    let bench = Bench::new();
    let texts = bench.texts();
    let right = prop_oneof![
        4 => held(),
        4 => (select(vec![2, 3, 6]), now(), text(&texts)).prop_map(|(verdict, now, value)| Frame::Array(vec![Frame::Int(verdict), now, value])),
        1 => (select(vec![4, 5]), now()).prop_map(|(verdict, now)| Frame::Array(vec![Frame::Int(verdict), now])),
        1 => junk(texts.clone()),
    ];
    check(nearly(right.boxed(), texts), |answer| {
        let proven = oracle::proof_of_ask(&answer);
        let verdict = answer
            .array()
            .and_then(|items| items.first())
            .and_then(Frame::int);
        let before = bench.node.shared.clock.now();
        let occupant = match bench.ask(answer.clone()) {
            Ok(AskReply::Held(proof)) => {
                prop_assert_eq!(Some(proof.token.into()), proven);
                prop_assert!(proof.sent >= before);
                return Ok(true);
            }
            Ok(AskReply::Queued(occupant)) => (Some(2), occupant),
            Ok(AskReply::Busy(occupant)) => (Some(3), occupant),
            Ok(AskReply::Full(occupant)) => (Some(6), occupant),
            Ok(AskReply::Late) => (Some(4), None),
            Ok(AskReply::Foreign(_)) | Err(_) => (verdict, None),
        };
        prop_assert_eq!(proven, None, "a hold was not seen");
        prop_assert_eq!(occupant.0, verdict);
        let ours = occupant.1.and_then(|occupant| occupant.ours);
        if ours.is_some() {
            let value = answer
                .array()
                .and_then(|items| items.get(2))
                .and_then(Frame::as_text);
            prop_assert_eq!(
                ours,
                oracle::owner_of_value(&bench.client(), value.unwrap_or_default())
            );
        }
        Ok(false)
    });
}

#[test]
fn a_confirmation_proves_what_it_says() {
    let bench = Bench::new();
    let right = prop_oneof![
        3 => (now(), number()).prop_map(|(now, token)| Frame::Array(vec![Frame::Int(1), now, token])),
        1 => now().prop_map(|now| Frame::Array(vec![Frame::Int(0), now])),
        1 => junk(bench.texts()),
    ];
    check(nearly(right.boxed(), bench.texts()), |answer| {
        let result = bench.run(std::slice::from_ref(&answer), async |node| {
            let confirm = Confirm {
                key: &bench.key,
                owner: 7,
                timing: Timing::new(LEASE),
                durability: Durability::NONE,
            };
            node.run(None, &confirm, WITHIN).await
        });
        let believed = result.ok().flatten().map(|proof| proof.token.into());
        prop_assert_eq!(believed, oracle::proof(&answer));
        Ok(believed.is_some())
    });
}

#[test]
fn a_renewal_extends_only_what_the_reply_leaves_out() {
    let bench = Bench::new();
    let failure = (0..4i64, select(vec!["", "OOM x", "ERR x"]))
        .prop_map(|(index, error)| Frame::Array(vec![Frame::Int(index), Frame::text(error)]));
    let right = prop_oneof![
        4 => prop::collection::vec(failure, 0..4).prop_map(Frame::Array),
        1 => junk(bench.texts()),
    ];
    check(nearly(right.boxed(), bench.texts()), |answer| {
        let batch = bench.renewals();
        let result = bench.run(std::slice::from_ref(&answer), async |node| {
            node.run(None, &batch[..], WITHIN).await
        });
        let expected = oracle::failures(&answer, batch.len());
        let failed = result.ok().map(|renewed| {
            renewed
                .failures
                .into_iter()
                .map(|(index, how)| (index, how == RenewalFailure::Gone))
                .collect::<Vec<_>>()
        });
        prop_assert_eq!(&failed, &expected);
        Ok(failed.is_some())
    });
}

#[test]
fn a_look_finds_ours_only_where_it_is_written() {
    let bench = Bench::new();
    let texts = bench.texts();
    let missing =
        prop::collection::vec((0..3i64).prop_map(Frame::Int), 0..3).prop_map(Frame::Array);
    let seen = (text(&texts), number(), missing)
        .prop_map(|(value, left, missing)| Frame::Array(vec![value, left, missing]));
    let failed = select(vec!["FOREIGN x", "OOM x", ""]).prop_map(Frame::text);
    let each = prop_oneof![5 => seen, 1 => failed].boxed();
    let right = prop_oneof![
        6 => (now(), each.clone(), each).prop_map(|(now, first, second)| Frame::Array(vec![now, first, second])),
        1 => junk(texts.clone()),
    ];
    check(nearly(right.boxed(), texts), |answer| {
        let looks = bench.looks();
        let result = bench.run(std::slice::from_ref(&answer), async |node| {
            node.run(None, &looks[..], WITHIN).await
        });
        let Ok(replies) = result else {
            return Ok(false);
        };
        prop_assert_eq!(replies.len(), looks.len());
        let mut found = false;
        for ((at, look), reply) in looks.iter().enumerate().zip(replies) {
            let LookReply::Seen { occupant, missing } = reply else {
                continue;
            };
            let item = answer.array().and_then(|items| items.get(at + 1));
            let ours = occupant.and_then(|occupant| occupant.ours);
            prop_assert_eq!(ours, oracle::ours_seen(&bench.client(), item));
            prop_assert_eq!(Some(missing), oracle::missing(item, &look.owners));
            found = true;
        }
        Ok(found)
    });
}

#[test]
fn releases_and_inspections_read_anything() {
    let bench = Bench::new();
    let texts = bench.texts();
    let bit = || (0..2i64).prop_map(Frame::Int);
    let waiter = || (text(&texts), text(&texts), text(&texts));
    let waiting = prop::collection::vec(waiter(), 0..3);
    let inspect = (
        now(),
        text(&texts),
        number(),
        number(),
        text(&texts),
        bit(),
        waiting,
    )
        .prop_map(|(now, value, left, waiters, last, held, waiting)| {
            let waiting = waiting
                .into_iter()
                .flat_map(|(owner, place, entry)| [owner, place, entry]);
            let seen = [now, value, left, waiters, last, held];
            Frame::Array(seen.into_iter().chain(waiting).collect())
        });
    let right = prop_oneof![2 => select(vec!["0", "1"]).prop_map(Frame::text), 2 => inspect, 1 => junk(texts.clone())];
    check(nearly(right.boxed(), texts), |answer| {
        // What says that there is more to do is tested by itself.
        let more = matches!(answer.as_text(), Some("2" | "3"));
        let inspected = bench.run(std::slice::from_ref(&answer), async |node| {
            node.run(None, &bench.inspect(), WITHIN).await
        });
        if let Ok(Inspection {
            occupant: Some(occupant),
            ..
        }) = &inspected
        {
            prop_assert!(!occupant.holder().to_string().is_empty());
        }
        let released = !more
            && bench
                .run(&[answer], async |node| {
                    node.release(OWNERS[0], &bench.release(), WITHIN).await
                })
                .is_ok();
        Ok(inspected.is_ok() || released)
    });
}

/// A server that always says that there is more to remove.
#[test]
fn a_release_ends() {
    let bench = Bench::new();
    let within = Duration::from_millis(100);
    let started = Instant::now();
    let endless = Frame::text("3");
    let released = bench.run(&[endless], async |node| {
        let release = bench.release();
        tokio::time::timeout(WITHIN, node.release(release.owner, &release, within))
            .await
            .expect("it goes on for ever")
    });
    assert!(released.unwrap().was_held);
    assert!(started.elapsed() >= within, "it gave up early");
}

/// A message, its fields mostly right.
fn push(bench: &Bench) -> BoxedStrategy<Frame> {
    let field = |right: Vec<String>, odd: &[&str]| {
        let odd: Vec<String> = odd.iter().map(|text| (*text).to_owned()).collect();
        prop_oneof![12 => select(right), 1 => select(odd), 1 => edge_number().prop_map(|number| number.to_string())].boxed()
    };
    let client = bench.client();
    let odd_owners: Vec<String> = bench.texts();
    let odd_owners: Vec<&str> = odd_owners.iter().map(String::as_str).collect();
    let numbers = [
        "",
        "0",
        "+5",
        "05",
        "5.0",
        "1e3",
        "18446744073709551615",
        "18446744073709551616",
        "٥",
        "-0",
    ];
    let time = |by: i64| (Impostor::micros() + by).to_string();
    let payload = (
        field(
            OWNERS.map(|owner| format!("{client}:{owner}")).to_vec(),
            &odd_owners,
        ),
        field(vec!["1700000000000000".into(), "1".into()], &numbers),
        field(vec![time(0), time(-500_000), time(3_600_000_000)], &numbers),
        field(vec!["1000".into(), "50".into()], &numbers),
        field(
            vec!["distlock:lock:{k}".into(), "distlock:lock:{a}:b c".into()],
            &[
                "",
                "distlock:lock:",
                "distlock:queue:{k}",
                "other:lock:{k}",
                "{k}",
                "distlock:lock:}{",
                "distlock:lock:k\n",
                "distlock:lock:{}",
            ],
        ),
        select(vec![" ", " ", " ", " ", " ", " ", "  ", "\t", "", "\0"]),
    );
    let payload = payload.prop_map(|(owner, token, granted, lease, key, space)| {
        Frame::text([owner, token, granted, lease, key].join(space))
    });
    let channel = format!("distlock:client:{client}");
    (
        payload,
        select(vec![
            "message",
            "message",
            "message",
            "message",
            "message",
            "pmessage",
            "smessage",
            "invalidate",
            "disconnection",
            "x",
            "",
        ]),
    )
        .prop_map(move |(payload, kind)| {
            Frame::Push(vec![
                Frame::text(kind),
                Frame::text(channel.clone()),
                payload,
            ])
        })
        .boxed()
}

#[test]
fn a_push_grants_only_what_it_says() {
    let bench = Bench::new();
    let pushes = prop_oneof![3 => push(&bench), 1 => nearly(push(&bench), bench.texts())];
    check(pushes.boxed(), |pushed| {
        // What is no push is an answer, and the wrong one for what comes next.
        let kind = match &pushed {
            Frame::Push(items) => items.first().and_then(Frame::as_text),
            _ => None,
        };
        // The client library ends the connection for a push without a kind.
        prop_assume!(kind.is_some());
        lock(&bench.grants).clear();
        let inspection = [
            Frame::Int(Impostor::micros()),
            Frame::text(""),
            Frame::Int(0),
            Frame::Int(0),
            Frame::text(""),
            Frame::Int(0),
        ];
        let answer = Frame::Array(inspection.to_vec());
        let inspected = bench.run(&[pushed.clone(), answer], async |node| {
            node.run(None, &bench.inspect(), WITHIN).await
        });
        prop_assert!(inspected.is_ok(), "{:?}", inspected);
        let received = bench.node.shared.clock.now();
        let granted = std::mem::take(&mut *lock(&bench.grants));
        let expected = oracle::grant(&bench.client(), &pushed);
        prop_assert!(granted.len() <= 1);
        match (granted.first(), &expected) {
            (None, None) => {}
            (Some(grant), Some(expected)) => {
                prop_assert_eq!(
                    (grant.owner, u64::from(grant.token)),
                    (expected.owner, expected.token)
                );
                prop_assert_eq!(grant.key.as_str(), &expected.key);
                prop_assert!(
                    grant.lease <= Duration::from_millis(expected.lease)
                        && grant.lease <= Duration::from_secs(1)
                );
                prop_assert!(
                    grant.granted_at.is_none_or(|at| at <= received),
                    "a grant from the future"
                );
            }
            (granted, expected) => prop_assert!(
                false,
                "granted {:?}, but the bytes say {:?}",
                granted,
                expected
            ),
        }
        Ok(expected.is_some())
    });
    assert!(bench.impostor.commands() >= u64::from(CASES));
}
