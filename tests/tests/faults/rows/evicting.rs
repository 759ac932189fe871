//! A server that evicts: of all keys, those with a TTL go first, and locks are those.

use std::time::Instant;

use distlock_tests::{RedisServer, Reply, Resp, within};

use crate::kit::{LONG, SLACK, connect, lock_key, ms};
use crate::rows::told::Service;

fn set(raw: &mut Resp, name: &str, value: &str) {
    let reply = raw.cmd(&["CONFIG", "SET", name, value]);
    assert_eq!(reply, Reply::Status("OK".into()));
}

#[test]
fn whoever_connects_is_warned() {
    let mut server = RedisServer::start();
    let mut raw = server.client();
    set(&mut raw, "maxmemory", "100mb");
    for policy in ["noeviction", "volatile-lru", "allkeys-random"] {
        set(&mut raw, "maxmemory-policy", policy);
        let url = server.url();
        let mut service = Service::with(server, &[&url]);
        service.end();
        let is_warned = service.count("WARN", policy) > 0;
        let is_quiet = service.count("WARN", "") == 0;
        let evicts = policy != "noeviction";
        assert_eq!((is_warned, is_quiet), (evicts, !evicts), "{policy}");
        server = service.server;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_lock_is_lost_at_the_next_renewal() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let lease = ms(9_000);
    let lock = manager.lock("k").lease(lease).wait(LONG);
    let guard = lock.acquire().await.unwrap();
    let used: u64 = raw.info_field("used_memory").parse().unwrap();
    set(&mut raw, "maxmemory-policy", "volatile-random");
    set(&mut raw, "maxmemory", &(used + 300_000).to_string());
    let filler = "x".repeat(2_000);
    let mut fillers = 0;
    while raw.exists(&lock_key("k")) {
        raw.cmd(&["SET", &format!("filler{fillers}"), &filler]);
        fillers += 1;
        assert!(fillers < 10_000, "it was not evicted");
    }
    let evicted = Instant::now();
    let error = within(LONG, guard.lost()).await;
    assert!(
        evicted.elapsed() < lease / 3 + SLACK,
        "told after {:?}",
        evicted.elapsed()
    );
    assert!(error.is_lost(), "{error:?}");
    assert!(!raw.exists(&lock_key("k")), "the renewal made it again");
    set(&mut raw, "maxmemory", "0");
    // The fence may be gone, too; the next token is higher all the same.
    raw.cmd(&["DEL", "distlock:fence:{k}"]);
    let next = lock.acquire().await.unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    assert!(guard.release().await.unwrap_err().is_lost());
    assert!(next.is_held());
    next.release().await.unwrap();
}
