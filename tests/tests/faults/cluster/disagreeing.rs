//! Nodes of a cluster that disagree on the owner of a slot.

use distlock_tests::RedisCluster;

use crate::cluster::access::become_user;
use crate::cluster::callers::served;
use crate::support::{
    LONG, acquire_later, calls, connect, connect_patiently, ms, taken_once, until_queued,
};

/// A node that has lost a slot, and does not know it, hands off a lock to the waiter there. A
/// client that knows better rejects the grant, because another client may have the lock at the
/// other node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_counts_only_from_the_node_that_has_the_slot() {
    let cluster = RedisCluster::start(2);
    let url = become_user(&cluster, &["~*", "&*", "+@all"]);
    let [unserved, key] = &cluster.key_on_each("k")[..] else {
        panic!("there are two primaries");
    };
    let (new, old) = (&cluster.primaries[0], &cluster.primaries[1]);
    let slot = cluster.slot(key).to_string();
    let name = cluster.name_of(old);
    let (mut raw, mut at_old) = (new.client(), old.client());
    let mut does = |words: &[&str]| {
        let reply = raw.cmd(words);
        assert!(!reply.is_error(), "{words:?}: {reply:?}");
    };
    let (first, waiter) = (connect(&url).await, connect(&url).await);
    let guard = first.lock(key).lease(LONG).acquire().await.unwrap();
    // Connects the waiter to the node that will get the slot.
    taken_once(&waiter, unserved).await;
    let mut waiting = acquire_later(&waiter, key, LONG, LONG);
    until_queued(&mut at_old, key, 1).await;
    // From here on only the new node reports the slots, and it claims this one.
    at_old.cmd(&["ACL", "SETUSER", "distlock", "-cluster|slots"]);
    does(&["CLUSTER", "FORGET", &name]);
    does(&["CLUSTER", "ADDSLOTS", &slot]);
    cluster.abandon(new, cluster.slot(unserved));
    let url = format!("redis+cluster://127.0.0.1:{}", new.port());
    let second = connect_patiently(url).await.unwrap();
    let other = second.lock(key).lease(LONG).acquire().await.unwrap();
    // A command for an unserved slot makes the waiter ask for the slots. It then waits at the new
    // node, too.
    let acquiring = acquire_later(&waiter, unserved, LONG, ms(1_000));
    until_queued(&mut new.client(), key, 1).await;
    acquiring.abort();
    guard.release().await.unwrap();
    // The old node has handed off the lock.
    assert_eq!(calls(&mut at_old, "spublish"), 1);
    let early = tokio::time::timeout(ms(300), &mut waiting).await;
    assert!(early.is_err(), "two holders at once: {early:?}");
    assert!(other.is_held());
    let token = other.fencing_token();
    other.release().await.unwrap();
    served(token, waiting).await;
}
