//! The permissions that a user of a cluster needs, no more and no less.

use distlock::{Error, Outage};
use distlock_tests::documents::acl_rules;
use distlock_tests::{RedisCluster, RedisServer, within};

use crate::access::{PAGE, USER, all, denied, inspected, renewed, set_user, user};
use crate::cluster::until_renewed;
use crate::support::{HELD, LONG, acquire_later, connect_patiently, ok, until_queued};

/// Returns the permissions that are needed in a cluster, and not for a single server.
fn more() -> Vec<&'static str> {
    let mut changes = acl_rules(PAGE).swap_remove(1);
    changes.retain(|change| change.starts_with('+'));
    changes
}

fn permissions() -> Vec<&'static str> {
    let changes = acl_rules(PAGE).swap_remove(1).join(" ").replace('-', "+");
    let mut permissions = all();
    permissions.retain(|permission| !changes.split(' ').any(|change| change == *permission));
    [permissions, more()].concat()
}

/// Gives the user these permissions at all nodes. Returns the URL of that user.
pub(super) fn become_user(cluster: &RedisCluster, permissions: &[&str]) -> String {
    for node in cluster.nodes() {
        set_user(&mut node.client(), permissions);
    }
    cluster.url_of(&format!("redis+cluster://{}@", user()))
}

/// Runs every step that differs in a cluster once.
async fn exercise(cluster: &RedisCluster, url: &str, key: &str) -> Result<(), Error> {
    let (first, second) = (connect_patiently(url).await?, connect_patiently(url).await?);
    let slot = cluster.slot(key);
    let from = cluster.owner(slot);
    let other = |node: &&RedisServer| node.port() != from.port();
    let to = cluster.primaries.iter().find(other).unwrap();
    let guard = first.lock(key).lease(HELD).acquire().await?;
    renewed(&guard).await?;
    inspected(&first, key).await?;
    let mut waiting = acquire_later(&second, key, HELD, LONG / 2);
    let (mut raw, mut there) = (from.client(), to.client());
    tokio::select! {
        refused = &mut waiting => return refused.unwrap().0.map(drop),
        () = until_queued(&mut raw, key, 1) => {}
    }
    guard.release().await?;
    let guard = within(LONG, waiting).await.unwrap().0?;
    // The hold is renewed at the node that has the key, before that node has the slot.
    cluster.begin_migration(slot, to);
    while cluster.migrate_keys(slot, from, to) > 0 {}
    tokio::select! {
        error = guard.lost() => {
            cluster.end_migration(slot, from, to);
            return Err(error);
        }
        () = until_renewed(&mut there, key) => {}
    }
    cluster.end_migration(slot, from, to);
    renewed(&guard).await?;
    guard.release().await
}

/// Without any one of these permissions something is denied, and with all of them nothing is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_needs_these_permissions_no_more_and_no_less() {
    let cluster = RedisCluster::start(2);
    let keys = cluster.key_on_each("k");
    for (index, missing) in ["none of them"].into_iter().chain(more()).enumerate() {
        let mut fewer = permissions();
        fewer.retain(|permission| *permission != missing);
        let url = become_user(&cluster, &fewer);
        // Another key each time, in an unused slot.
        let key = format!("{index}{}", keys[0]);
        let result = exercise(&cluster, &url, &key).await;
        let denied = cluster.nodes().flat_map(|node| denied(&mut node.client()));
        let denied: Vec<_> = denied.collect();
        let is_denied = more().contains(&missing);
        assert_eq!(denied.is_empty(), !is_denied, "{missing}: {denied:?}");
        assert!(is_denied || result.is_ok(), "{result:?}");
        if ["+cluster|slots", "+ssubscribe"].contains(&missing) {
            // `connect` fails at once, and names the command.
            let (error, named) = (result.unwrap_err(), missing[1..].replace('|', " "));
            let is_config = matches!(error, Error::Config { .. });
            assert!(is_config, "{missing}: {error:?}");
            let is_named = error.to_string().contains(&named.to_uppercase());
            assert!(is_named, "{missing}: {error}");
        }
        for node in cluster.nodes() {
            node.client().cmd(&["ACL", "LOG", "RESET"]);
        }
    }
}

/// A waiter subscribes in the same write as its acquire. Without that error, it would acquire again
/// until it times out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_may_no_longer_subscribe_is_denied() {
    let cluster = RedisCluster::start(2);
    let url = become_user(&cluster, &permissions());
    let (first, second) = (connect_patiently(&url).await, connect_patiently(&url).await);
    let (first, second) = (first.unwrap().lock("k"), second.unwrap().lock("k"));
    second.acquire().await.unwrap().release().await.unwrap();
    let _guard = first.lease(HELD).acquire().await.unwrap();
    for node in cluster.nodes() {
        ok(&mut node.client(), &["ACL", "SETUSER", USER, "-ssubscribe"]);
    }
    let error = second.wait(LONG).acquire().await.unwrap_err();
    assert_eq!(error.outage(), Some(Outage::Denied), "{error:?}");
}
