//! Hostile values in keys, as the server sees them.

use std::collections::BTreeMap;

use distlock::{Error, distributed_lock, with_manager};
use distlock_tests::{RedisServer, Resp};

use crate::support::connect;

#[distributed_lock(key = "{tenant:<tenant>}:stock:<sku>", lease = "5s", wait = "0s")]
async fn reserve(tenant: &str, sku: &str, raw: &mut Resp) -> Result<(String, Vec<String>), Error> {
    let key = distlock::current().key().to_owned();
    let keys = raw.keys("distlock:*").into_iter();
    Ok((
        key.clone(),
        keys.filter(|name| name.contains(&key)).collect(),
    ))
}

/// No value moves a key to another lock, or to another slot than its neighbors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_values_change_neither_lock_nor_slot() {
    let server = RedisServer::start();
    // Only computes slots.
    let oracle = RedisServer::builder()
        .arg("--cluster-enabled", "yes")
        .start();
    let (mut raw, mut oracle) = (server.client(), oracle.client());
    let manager = connect(&server.url()).await;
    let values = [
        "a",
        "b",
        "a}b",
        "}",
        "{",
        "{}",
        "{a}",
        "a:stock:b",
        "%",
        "%7D",
        "%257D",
        "a b",
        "\t",
        "\r\nDEL x",
        "\0",
        "\u{202e}abc",
        "日本語",
        "*",
        "?",
        "\\",
        "\"",
        "'",
        ":",
        "::",
        "x{y}z",
    ];
    let mut seen: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    for tenant in values {
        let mut slots = Vec::new();
        for sku in values {
            let call = with_manager(manager.clone(), reserve(tenant, sku, &mut raw));
            let (key, names) = call
                .await
                .unwrap_or_else(|error| panic!("{tenant:?} {sku:?}: {error}"));
            if let Some(other) = seen.insert(key.clone(), (tenant, sku)) {
                panic!("{other:?} and {:?} are both {key}", (tenant, sku));
            }
            assert_eq!(names.len(), 2, "a lock and a fence: {names:?}");
            for name in names {
                assert!(
                    name.chars().all(|c| !c.is_control() && c != ' '),
                    "{name:?}"
                );
                assert_eq!(name.matches('{').count(), 1, "{name}");
                let slot = oracle.cmd(&["CLUSTER", "KEYSLOT", &name]);
                slots.push(slot.int());
            }
        }
        slots.dedup();
        assert_eq!(slots.len(), 1, "tenant {tenant:?} is in several slots");
    }
    assert_eq!(seen.len(), values.len() * values.len());
    // An empty or a huge value is not a key.
    let huge = "x".repeat(1 << 20);
    for bad in ["", huge.as_str()] {
        for (tenant, sku) in [(bad, "a"), ("a", bad)] {
            let error = with_manager(manager.clone(), reserve(tenant, sku, &mut raw)).await;
            let error = error.unwrap_err();
            assert!(matches!(error, Error::InvalidValue { .. }), "{error:?}");
            assert!(error.to_string().len() < 1_000);
        }
    }
}
