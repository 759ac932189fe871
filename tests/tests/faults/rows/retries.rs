//! No layer below distlock retries on its own. distlock repeats a request with the same id, a
//! bounded number of times.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use distlock_tests::{RedisServer, within};

use crate::support::{LONG, SLACK, acquire_later, connect, lock_key, ms, take, until_clean, warm};

/// Distinct from all other numbers in a command.
const LEASE: Duration = ms(23_456);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_over_a_flapping_connection_are_bounded() {
    let server = RedisServer::start();
    warm(&server).await;
    let proxy = server.proxy();
    let mut raw = server.client();
    let near = connect(&server.url()).await;
    let far = connect(&server.url_via(&proxy)).await;
    let guard = near.lock("k").acquire().await.unwrap();
    let mut monitor = server.monitor();
    let (wait, requested_at) = (ms(8_000), Instant::now());
    let before = proxy.stats().accepted;
    // Every second connection breaks as soon as it is established, and the others soon after.
    let breaking = async {
        for life in [20, 400].into_iter().cycle() {
            tokio::time::sleep(ms(life)).await;
            proxy.reset_connections();
        }
    };
    let (result, ended) = tokio::select! {
        outcome = within(LONG, acquire_later(&far, "k", LEASE, wait)) => outcome.unwrap(),
        () = breaking => unreachable!("it never ends"),
    };
    let waited = ended - requested_at;
    let connections = proxy.stats().accepted - before;
    let error = result.unwrap_err();
    assert!(error.is_busy() || error.is_unavailable(), "{error:?}");
    assert!(
        waited + ms(20) >= wait && waited < wait + ms(250) + SLACK,
        "waited {waited:?}"
    );
    assert!(connections >= 6, "only {connections} connections");
    // Counts the acquires on each connection.
    let call = format!("\"2\" \"{}\"", lock_key("k"));
    let lock_fence = format!("\"{}\"", lock_key("k").replace(":lock:", ":fence:"));
    // The third argument is the TTL, lease and grace period.
    let ttl = format!("\"{}\"", (LEASE + LEASE / 10).as_micros().div_ceil(1_000));
    let mut acquires: BTreeMap<String, u64> = BTreeMap::new();
    let mut owners = Vec::new();
    for line in monitor.lines() {
        if line.contains(&call) && line.contains(&ttl) {
            assert!(
                line.contains("\"EVALSHA\""),
                "sent again as a whole: {line}"
            );
            let words: Vec<&str> = line.split(' ').collect();
            let from = words[2].to_owned();
            let (_, arguments) = line.split_once(&lock_fence).unwrap();
            owners.push(arguments.split('"').nth(1).unwrap().to_owned());
            *acquires.entry(from).or_default() += 1;
        }
    }
    let total: u64 = acquires.values().sum();
    assert!(total >= 2, "the acquire was not retried: {acquires:?}");
    // One after a reconnect, and perhaps one after a missing reply.
    assert!(
        acquires.values().all(|count| *count <= 2),
        "a storm: {acquires:?}"
    );
    owners.dedup();
    assert_eq!(owners.len(), 1, "one call, one id: {owners:?}");
    proxy.heal();
    guard.release().await.unwrap();
    let later = far.lock("k").lease(LEASE).wait(LONG);
    take(later).await;
    until_clean(&mut raw, LONG).await;
}
