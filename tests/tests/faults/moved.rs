//! A name that moves to another server while the old server keeps its connections.

use distlock::{Error, LockManager, Outage};
use distlock_tests::sentinel::follow;
use distlock_tests::{RedisServer, eventually_async, within};

use crate::contended::Contended;
use crate::support::{
    HELD, LONG, accepted, acquire_later, acquired, assert_message_contains, calls, connect,
    connections, expiry_after_renewal, hand_on, hold, kill, ms, ok, taken_once, until_clean,
};

/// The name reaches another server while the old one works well. All connections stay with the old
/// server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_runtime_connection_leads_to_another_server() {
    // A reply that takes more than a second counts as a fault of the old server, hence several
    // rounds.
    for round in 1.. {
        let (old, new) = (RedisServer::start(), RedisServer::start());
        let proxy = old.proxy();
        let manager = connect(&old.url_via(&proxy)).await;
        proxy.move_to(new.addr());
        let mut raw = new.client();
        let before = accepted(&mut raw);
        let call = async || {
            let lock = manager.lock("k");
            let call = tokio::spawn(async move { lock.acquire().await.unwrap().release().await });
            call.await.unwrap().unwrap();
        };
        eventually_async(LONG, async || {
            call().await;
            accepted(&mut raw) != before
        })
        .await;
        for _ in 0..100 {
            call().await;
        }
        assert!(old.client().exists("distlock:fence:{k}"));
        if raw.keys("*").is_empty() {
            return;
        }
        assert!(round < 5, "the new server was used in {round} rounds");
    }
}

/// Some connections are cut when the name already reaches another server. The others follow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_connections_lead_to_one_server() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let mut raw = old.client();
    for cut in ["pubsub", "normal"] {
        let proxy = old.proxy();
        let manager = connect(&old.url_via(&proxy)).await;
        let guard = hold(&manager, "k", HELD).await;
        proxy.move_to(new.addr());
        kill(&mut raw, cut);
        // The hold is no longer renewed at the old server, and the new one does not know it.
        let lost = within(LONG, guard.lost()).await;
        assert!(matches!(lost, Error::Lost { .. }), "{cut}: {lost:?}");
        eventually_async(LONG, async || connections(&mut raw) == 1).await;
        drop(guard);
        taken_once(&manager, "k").await;
        assert!(new.client().exists("distlock:fence:{k}"), "{cut}");
        manager.shutdown().await;
        until_clean(&mut raw, LONG).await;
    }
}

/// The old connections stay open, and reply READONLY forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_and_queues_continue_on_the_new_primary() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    // The new server replicates the old one.
    follow(&new, &old);
    let synced = async || new.client().info_field("master_link_status") == "up";
    eventually_async(LONG, synced).await;
    let this = Contended::behind_proxy(old, ms(9_000)).await;
    let arrived = async || new.client().exists("distlock:queue:{k}");
    eventually_async(LONG, arrived).await;
    this.proxy.move_to(new.addr());
    let mut raw = new.client();
    ok(&mut raw, &["REPLICAOF", "NO", "ONE"]);
    follow(&this.server, &new);
    // Renewals go to the new primary, so the hold is not lost.
    expiry_after_renewal(&mut raw, "k").await;
    assert!(this.guard.is_held());
    hand_on(this.guard, this.waiting, &mut raw).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demotion_causes_no_retry_storm() {
    let (server, elsewhere) = (RedisServer::start(), RedisServer::start());
    let manager = connect(&server.url()).await;
    let mut raw = server.client();
    let herd = |wait| {
        let call = |n| acquire_later(&manager, &format!("k{n}"), ms(3_000), wait);
        (0..50).map(call).collect::<Vec<_>>()
    };
    for waiting in herd(LONG) {
        acquired(waiting).await.release().await.unwrap();
    }
    follow(&server, &elsewhere);
    eventually_async(LONG, async || {
        let tried = manager.lock("k").try_acquire().await;
        tried.is_err_and(|error| error.outage() == Some(Outage::ReadOnly))
    })
    .await;
    raw.cmd(&["CONFIG", "RESETSTAT"]);
    let before = connections(&mut raw);
    for waiting in herd(ms(1_500)) {
        let error = within(LONG, waiting).await.unwrap().0.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        assert_message_contains(&error, &["replica"]);
    }
    // The calls wait for a primary. Only the checks for one are sent to the replica.
    let count = calls(&mut raw, "evalsha");
    assert!(count < 100, "it received {count} commands");
    let dialed = accepted(&mut raw);
    assert!(dialed < 60, "{dialed} connections in a second and a half");
    assert!(connections(&mut raw) <= before + 2);
    // A new manager does not connect to the replica either.
    let connecting = LockManager::builder();
    let url = server.url();
    let connecting = connecting.connect_timeout(ms(4_000)).connect(&url);
    let error = connecting.await.unwrap_err();
    assert_eq!(error.outage(), Some(Outage::ReadOnly));
    assert_message_contains(&error, &[&server.port().to_string()]);
    ok(&mut raw, &["REPLICAOF", "NO", "ONE"]);
    let guard = hold(&manager, "k", HELD).await;
    guard.release().await.unwrap();
}
