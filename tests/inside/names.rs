//! What belongs to one lock lies in one slot of a cluster, and belongs to no other lock.

use std::collections::{HashMap, HashSet};
use std::net::TcpListener;
use std::time::Duration;

use distlock_tests::RedisServer;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::*;
use crate::manager::builder::connect::is_namespace;

const SLOTS: u16 = 16_384;

/// CRC16 as the cluster specification has it (XMODEM: polynomial 0x1021, nothing reflected), by a table.
fn crc16(bytes: &[u8]) -> u16 {
    let table: Vec<u16> = (0..=255u16)
        .map(|byte| {
            (0..8).fold(byte << 8, |crc, _| {
                if crc & 0x8000 == 0 {
                    crc << 1
                } else {
                    crc << 1 ^ 0x1021
                }
            })
        })
        .collect();
    bytes.iter().fold(0, |crc, byte| {
        crc << 8 ^ table[usize::from((crc >> 8) as u8 ^ byte)]
    })
}

/// The slot of a Redis key: of what stands between the first `{` and the next `}`, unless that is nothing.
fn slot(name: &str) -> u16 {
    let tag = name
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(name).as_bytes()) % SLOTS
}

/// Legal keys, with a hash tag of their own or without, and with what looks like our own names.
fn keys() -> impl Strategy<Value = LockKey> {
    let text = prop_oneof![
        select(vec![
            "",
            ":",
            "a",
            "b",
            "lock:",
            "queue:",
            "entry",
            "fence:x",
            "distlock:lock:",
            "%7B",
            " ",
            "日本",
            "*"
        ])
        .prop_map(str::to_owned),
        any::<String>()
            .prop_map(|text| text.replace(|c: char| c.is_control() || "{}".contains(c), "")),
    ];
    (prop::collection::vec(text, 4), any::<bool>()).prop_filter_map(
        "a legal key",
        |(texts, tagged)| {
            let key = if tagged {
                format!("{}{{{}{}}}{}", texts[0], texts[1], texts[2], texts[3])
            } else {
                texts.concat()
            };
            LockKey::new(&key).ok()
        },
    )
}

fn namespaces() -> impl Strategy<Value = String> {
    let component = select(vec![
        "distlock", "a", "lock", "queue", "entry", "fence", "client", "b.c", "x-lock", "Lock", "",
    ]);
    prop::collection::vec(component, 1..4)
        .prop_map(|components| components.join(":"))
        .prop_filter("a namespace", |name| is_namespace(name))
}

#[test]
fn the_reference_is_right() {
    assert_eq!(
        crc16(b"123456789"),
        0x31C3,
        "the check value of CRC-16/XMODEM"
    );
    assert_eq!(slot("{user1000}.following"), slot("user1000"));
    assert_ne!(slot("foo{}{bar}"), slot("bar"), "an empty tag is none");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_names_of_a_lock_have_one_tag_and_one_slot(key in keys(), namespace in namespaces()) {
        let names = Names::new(&namespace).of(&key);
        for name in &names {
            prop_assert_eq!(name.matches('{').count(), 1, "{}", name);
            prop_assert_eq!(name.matches('}').count(), 1, "{}", name);
            prop_assert!(!name.contains("{}"), "{}", name);
            prop_assert_eq!(slot(name), slot(&names[0]), "{:?}", &names);
        }
        let own_tag = key.as_str().contains('{');
        prop_assert_eq!(slot(&names[0]), if own_tag { slot(key.as_str()) } else { crc16(key.as_str().as_bytes()) % SLOTS });
    }

    #[test]
    fn commands_name_the_same_keys(key in keys()) {
        let names = Names::new("distlock");
        let of = names.of(&key);
        let mut cmd = Cmd::new();
        names.all(&mut cmd, &key);
        names.without_fence(&mut cmd, &key);
        let sent: Vec<_> = cmd.args_iter().map(|arg| match arg {
            redis::Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            _ => panic!("a cursor"),
        }).collect();
        let [lock, queue, entry, fence] = of.each_ref().map(String::as_str);
        prop_assert_eq!(sent, ["4", lock, queue, entry, fence, "3", lock, queue, entry]);
        prop_assert_eq!(names.lock(&key), lock);
    }

    #[test]
    fn two_locks_share_no_name(a in keys(), b in keys(), one in namespaces(), other in namespaces()) {
        let (first, second) = (Names::new(&one).of(&a), Names::new(&other).of(&b));
        let same = one == other && a.same_lock(&b);
        for name in &first {
            prop_assert_eq!(second.contains(name), same, "{} of {:?} and {:?}", name, (&one, &a), (&other, &b));
        }
        prop_assert_eq!(first.iter().collect::<HashSet<_>>().len(), 4);
    }
}

/// Every pair of many short keys and namespaces, so that a collision cannot hide.
#[test]
fn short_locks_share_no_name() {
    let words = [
        "a", "b", "lock", "queue", "entry", "fence", "a:lock", "{a}", "b:{a}", "{b:a}", "{lock:a}",
    ];
    let keys: Vec<_> = words
        .iter()
        .chain(&[""])
        .flat_map(|first| {
            words.map(|second| {
                if first.is_empty() {
                    second.to_owned()
                } else {
                    format!("{first}:{second}")
                }
            })
        })
        .filter_map(|key| LockKey::new(&key).ok())
        .collect();
    let namespaces = [
        "a",
        "b",
        "lock",
        "a:b",
        "a:lock",
        "a:lock:b",
        "a:queue",
        "a:lock:",
        "lock:a",
        "a:b:fence:c",
    ];
    let mut seen: HashMap<String, (&str, String)> = HashMap::new();
    for namespace in namespaces
        .into_iter()
        .filter(|namespace| is_namespace(namespace))
    {
        for key in &keys {
            for name in Names::new(namespace).of(key) {
                let lock = (namespace, key.tagged().to_string());
                let other = seen.entry(name.clone()).or_insert(lock.clone());
                assert_eq!(*other, lock, "both use {name}");
            }
        }
    }
}

#[test]
fn a_cluster_sees_one_slot_for_each_lock() {
    const LOCKS: usize = 1_000;
    let bus = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string();
    // A bus of its own: the usual one, 10 000 ports above, may be beyond the last.
    let server = RedisServer::builder()
        .args(["--cluster-enabled", "yes", "--cluster-port", &bus])
        .start();
    let mut client = server.client();
    let mut runner = TestRunner::deterministic();
    let strategy = keys();
    let names = Names::new("distlock");
    let locks: Vec<_> = (0..LOCKS)
        .map(|_| names.of(&strategy.new_tree(&mut runner).unwrap().current()))
        .collect();
    for batch in locks.chunks(100) {
        for name in batch.iter().flatten() {
            client.send(&["CLUSTER", "KEYSLOT", name]).unwrap();
        }
        for lock in batch {
            let slots = lock
                .each_ref()
                .map(|_| client.read_reply(Duration::from_secs(20)).unwrap().int());
            assert_eq!(slots, [i64::from(slot(&lock[0])); 4], "{lock:?}");
        }
    }
    let slots: HashSet<_> = locks.iter().map(|lock| slot(&lock[0])).collect();
    assert!(slots.len() > LOCKS / 4, "only {} slots", slots.len());
}
