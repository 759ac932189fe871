//! A name that moves to another server while the old one keeps its connections.

use distlock::{Error, LockManager, Outage};
use distlock_tests::{RedisServer, Reply, Resp, eventually_async, within};

use crate::kit::{HELD, LONG, acquire_later, connect, connections, ms, taken_once, until_clean};

/// Makes a server a replica of another one.
fn demote(server: &RedisServer, master: &RedisServer) {
    let port = master.port().to_string();
    let ok = Reply::Status("OK".into());
    assert_eq!(server.client().cmd(&["REPLICAOF", "127.0.0.1", &port]), ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_master_is_left_for_the_new_one() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let proxy = old.proxy();
    let manager = connect(&old.url_via(&proxy)).await;
    let used = manager.lock("used").acquire().await.unwrap();
    used.release().await.unwrap();
    proxy.move_to(new.addr());
    demote(&old, &new);
    // The old connections live on, and say READONLY for ever.
    let asked = std::time::Instant::now();
    let guard = manager.lock("k").wait(LONG).acquire().await.unwrap();
    println!("served by the new master after {:?}", asked.elapsed());
    let mut raw = new.client();
    assert!(raw.exists("distlock:lock:{k}"));
    guard.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

/// The name means another server, and nothing is wrong with the old one: all connections stay with that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lane_leads_to_another_server() {
    // An answer that takes more than a second is something wrong with the old one, hence another round.
    for round in 1.. {
        let (old, new) = (RedisServer::start(), RedisServer::start());
        let proxy = old.proxy();
        let manager = connect(&old.url_via(&proxy)).await;
        proxy.move_to(new.addr());
        let mut raw = new.client();
        let dialed = |raw: &mut Resp| raw.info_field("total_connections_received");
        let before = dialed(&mut raw);
        let calls = async || {
            let lock = manager.lock("k");
            let call = tokio::spawn(async move { lock.acquire().await.unwrap().release().await });
            call.await.unwrap().unwrap();
        };
        eventually_async(LONG, async || {
            calls().await;
            dialed(&mut raw) != before
        })
        .await;
        for _ in 0..100 {
            calls().await;
        }
        assert!(old.client().exists("distlock:fence:{k}"));
        if raw.keys("*").is_empty() {
            return;
        }
        assert!(round < 5, "the new server was used in {round} rounds");
    }
}

/// Some of its connections are cut when the name means another server already: the others are not left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_connections_lead_to_one_server() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let mut raw = old.client();
    for cut in ["pubsub", "normal"] {
        let proxy = old.proxy();
        let manager = connect(&old.url_via(&proxy)).await;
        let lock = manager.lock("k").lease(HELD);
        let guard = lock.acquire().await.unwrap();
        proxy.move_to(new.addr());
        raw.cmd(&["CLIENT", "KILL", "TYPE", cut, "SKIPME", "yes"]);
        // It is renewed at the old one no more, and the new one does not know it.
        let lost = within(LONG, guard.lost()).await;
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        eventually_async(LONG, async || connections(&mut raw) == 1).await;
        drop(guard);
        taken_once(&manager, "k").await;
        assert!(new.client().exists("distlock:fence:{k}"));
        manager.shutdown().await;
        until_clean(&mut raw, LONG).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_and_waited_for_goes_over_to_the_new_master() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    // It has all that the old one has.
    demote(&new, &old);
    let synced = async || new.client().info_field("master_link_status") == "up";
    eventually_async(LONG, synced).await;
    let proxy = old.proxy();
    let lease = ms(9_000);
    let holder = connect(&old.url_via(&proxy)).await;
    let waiter = connect(&old.url_via(&proxy)).await;
    let guard = holder.lock("k").lease(lease).acquire().await.unwrap();
    let waiting = acquire_later(&waiter, "k", lease, LONG);
    crate::kit::until_queued(&mut old.client(), "k", 1).await;
    let arrived = async || new.client().exists("distlock:queue:{k}");
    eventually_async(LONG, arrived).await;
    proxy.move_to(new.addr());
    let ok = Reply::Status("OK".into());
    assert_eq!(new.client().cmd(&["REPLICAOF", "NO", "ONE"]), ok);
    demote(&old, &new);
    // Renewals go to the new master: nothing is lost.
    let mut raw = new.client();
    crate::kit::expiry_after_renewal(&mut raw, "k").await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let (guard, _) = within(LONG, waiting).await.unwrap();
    guard.unwrap().release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_not_answered_with_a_herd() {
    let (server, elsewhere) = (RedisServer::start(), RedisServer::start());
    let manager = connect(&server.url()).await;
    let mut raw = server.client();
    let waiting: Vec<_> = (0..50)
        .map(|n| acquire_later(&manager, &format!("k{n}"), ms(3_000), LONG))
        .collect();
    for waiting in waiting {
        let (guard, _) = within(LONG, waiting).await.unwrap();
        guard.unwrap().release().await.unwrap();
    }
    demote(&server, &elsewhere);
    eventually_async(LONG, async || {
        let tried = manager.lock("k").try_acquire().await;
        matches!(
            tried,
            Err(Error::Unavailable {
                outage: Outage::ReadOnly,
                ..
            })
        )
    })
    .await;
    raw.cmd(&["CONFIG", "RESETSTAT"]);
    let before = connections(&mut raw);
    let waiting: Vec<_> = (0..50)
        .map(|n| acquire_later(&manager, &format!("k{n}"), ms(3_000), ms(1_500)))
        .collect();
    for waiting in waiting {
        let error = within(LONG, waiting).await.unwrap().0.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        assert!(error.to_string().contains("replica"), "{error}");
    }
    // They wait for a master, and nobody asks the replica but those who look whether it is one.
    let stats = raw.cmd(&["INFO", "commandstats"]);
    let calls = |line: &str| {
        let behind = line.strip_prefix("cmdstat_evalsha:calls=")?;
        behind.split(',').next()?.parse::<u64>().ok()
    };
    let asked = stats.text().unwrap().lines().find_map(calls).unwrap_or(0);
    assert!(asked < 100, "it was asked {asked} times");
    let received: u64 = raw
        .info_field("total_connections_received")
        .parse()
        .unwrap();
    assert!(
        received < 60,
        "{received} connections in a second and a half"
    );
    assert!(connections(&mut raw) <= before + 2);
    assert_eq!(
        raw.cmd(&["REPLICAOF", "NO", "ONE"]),
        Reply::Status("OK".into())
    );
    let guard = manager.lock("k").wait(LONG).acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_no_server_to_connect_to() {
    let (server, elsewhere) = (RedisServer::start(), RedisServer::start());
    demote(&server, &elsewhere);
    let connecting = LockManager::builder()
        .url(server.url())
        .connect_timeout(ms(4_000));
    let error = connecting.connect().await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Unavailable {
                outage: Outage::ReadOnly,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(
        error.to_string().contains(&server.port().to_string()),
        "{error}"
    );
}
