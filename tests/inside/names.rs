//! The names of a lock are all in one slot of a cluster, and belong to no other lock.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::manager::builder::connect::is_namespace;
use crate::store::redis::cluster::slots::Slot;

/// Legal keys, with or without a hash tag, including text that resembles the library's own names.
fn keys() -> impl Strategy<Value = LockKey> {
    let text = prop_oneof![
        select(vec![
            "", ":", "a", "b", "lock:", "queue:", "entry", "fence:x", "%7B", " ", "日本", "*"
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
        "distlock", "a", "lock", "queue", "entry", "fence", "done", "client", "b.c", "x-lock",
        "Lock", "",
    ]);
    prop::collection::vec(component, 1..4)
        .prop_map(|components| components.join(":"))
        .prop_filter("a namespace", |name| is_namespace(name))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_names_of_a_lock_have_one_tag_and_one_slot(key in keys(), namespace in namespaces()) {
        let names = Names::new(&namespace);
        let record = names.record(&key, &crate::escape("a:b {c}"));
        for name in names.keys(&key).iter().chain([&record]) {
            prop_assert_eq!(name.matches('{').count(), 1, "{}", name);
            prop_assert_eq!(name.matches('}').count(), 1, "{}", name);
            prop_assert!(!name.contains("{}"), "{}", name);
            prop_assert_eq!(Slot::of(name), Slot::of(key.as_str()), "{}", name);
        }
    }
}

/// Compares every pair of many short keys and namespaces, so that no collision can hide.
#[test]
fn short_locks_share_no_name() {
    let words = [
        "a", "b", "lock", "queue", "entry", "fence", "a:lock", "{a}", "b:{a}", "{b:a}", "{lock:a}",
        ":a", "done",
    ];
    let pairs = words.map(|first| words.map(|second| format!("{first}:{second}")));
    let keys = pairs.into_iter().flatten().chain(words.map(str::to_owned));
    let keys: Vec<_> = keys.filter_map(|key| LockKey::new(&key).ok()).collect();
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
        "b:fence:c",
        "a:done",
        "done",
    ];
    let mut seen: HashMap<String, (&str, String)> = HashMap::new();
    for namespace in namespaces.into_iter().filter(|name| is_namespace(name)) {
        for key in &keys {
            let names = Names::new(namespace);
            let records = ["", "a", "done"].map(|selector| names.record(key, selector));
            let names: Vec<_> = names.keys(key).into_iter().chain(records).collect();
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), 7, "{names:?}");
            for name in names {
                let lock = (namespace, key.tagged().to_string());
                let other = seen.entry(name.clone()).or_insert(lock.clone());
                assert_eq!(*other, lock, "both use {name}");
            }
        }
    }
}
