//! Commands that are redirected, and the effects that they may leave at the first node.

use distlock_tests::{RedisCluster, RedisServer, eventually_async};

use crate::cluster::access::become_user;
use crate::cluster::{until_all_clean, until_renewed};
use crate::support::{
    HELD, LONG, acquire_later, calls, connect, give_back, ms, taken_once, until_queued,
};

/// No node reports the slots, so the manager can only follow the redirect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moved_slot_is_followed_by_the_redirect_alone() {
    let cluster = RedisCluster::start(3);
    let url = become_user(&cluster, &["~*", "&*", "+@all"]);
    let key = cluster.key_on_each("moved")[0].clone();
    let other = format!("other{{{key}}}");
    let (from, to) = (&cluster.primaries[0], &cluster.primaries[1]);
    // One manager for each command, because a redirected manager knows the new node.
    let (renews, releases) = (connect(&url).await, connect(&url).await);
    let (acquires, waits) = (connect(&url).await, connect(&url).await);
    let inspects = connect(&url).await;
    let renewed = renews.lock(&key).lease(HELD).acquire().await.unwrap();
    let released = releases.lock(&other).lease(LONG).acquire().await.unwrap();
    let waiting = acquire_later(&waits, &key, LONG, LONG);
    until_queued(&mut from.client(), &key, 1).await;
    become_user(&cluster, &["~*", "&*", "+@all", "-cluster|slots"]);
    cluster.migrate(cluster.slot(&key), to);
    let mut raw = to.client();
    until_renewed(&mut raw, &key).await;
    assert!(renewed.is_held());
    assert_eq!(inspects.inspect(&key).await.unwrap().queue_length, 1);
    released.release().await.unwrap();
    let guard = acquires.lock(&other).try_acquire().await.unwrap();
    guard.expect("it is free").release().await.unwrap();
    renewed.release().await.unwrap();
    give_back(waiting).await;
    until_all_clean(&cluster).await;
}

/// A slot moves to another node and back while an acquire is in flight. The lock that it then takes
/// is released again, after the release at the other node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_applied_after_the_slot_returned_is_released() {
    const ROUNDS: usize = 20;
    let cluster = RedisCluster::start(2);
    // The second node has the stronger claims, so it has its slots again when it wakes up.
    let (other, owner) = (&cluster.primaries[0], &cluster.primaries[1]);
    for node in cluster.nodes() {
        // No node counts as dead before this time.
        let set = ["CONFIG", "SET", "cluster-node-timeout", "60000"];
        assert!(!node.client().cmd(&set).is_error());
    }
    let [unserved, key] = &cluster.key_on_each("k")[..] else {
        panic!("there are two primaries");
    };
    let slot = cluster.slot(key).to_string();
    let names = [other, owner].map(|node| cluster.name_of(node));
    let believes = |node: &RedisServer, name: &str| {
        let reply = node
            .client()
            .cmd(&["CLUSTER", "SETSLOT", &slot, "NODE", name]);
        assert!(!reply.is_error(), "{reply:?}");
    };
    let mut other_raw = other.client();
    let manager = connect(&cluster.url()).await;
    // Commands of a connection that opens must not be counted below.
    taken_once(&manager, unserved).await;
    cluster.abandon(other, cluster.slot(unserved));
    let mut applied_late = false;
    for round in 0..ROUNDS {
        let key = format!("{round}{{{key}}}");
        let [lock, fence] = ["lock", "fence"].map(|kind| format!("distlock:{kind}:{key}"));
        taken_once(&manager, &format!("before{key}")).await;
        let mut raw = owner.client();
        assert!(!raw.exists(&fence));
        owner.stop_process();
        believes(other, &names[0]);
        let acquiring = acquire_later(&manager, &key, LONG * 3, LONG);
        // The acquire must be sent by now; otherwise this round shows nothing.
        tokio::time::sleep(ms(30)).await;
        // A command for an unserved slot makes the manager ask for the slots.
        let before = calls(&mut other_raw, "cluster|slots");
        let doubting = acquire_later(&manager, unserved, LONG, ms(1_000));
        eventually_async(LONG, async || {
            calls(&mut other_raw, "cluster|slots") > before
        })
        .await;
        tokio::time::sleep(ms(20)).await;
        let released = calls(&mut other_raw, "evalsha");
        acquiring.abort();
        eventually_async(LONG, async || calls(&mut other_raw, "evalsha") > released).await;
        believes(other, &names[1]);
        owner.cont_process();
        let _ = raw.cmd(&["PING"]);
        applied_late = raw.exists(&lock);
        doubting.abort();
        println!("round {round}: applied late: {applied_late}");
        if applied_late {
            // Long before its lease ends.
            eventually_async(LONG, async || !raw.exists(&lock)).await;
            break;
        }
    }
    assert!(applied_late, "no acquire was late in {ROUNDS} rounds");
}
