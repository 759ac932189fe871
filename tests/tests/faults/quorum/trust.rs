//! Credentials and permissions at the nodes, alike at all of them or different at one.

use distlock::LockManager;
use distlock_tests::{RedisQuorum, RedisServer};

use crate::access::{all, set_user, user};
use crate::cluster::credentials::servers_receive_new_credentials;
use crate::quorum::nodes::{is_refused, until_logged};
use crate::quorum::{serves, three, until_clean, works};
use crate::support::{HELD, connect_patiently, until_renewed_twice};

const HOST: &str = "127.0.0.1";

/// Returns the URL of the same servers with a user.
fn url_of(quorum: &RedisQuorum, user: &str) -> String {
    quorum.url().replacen("://", &format!("://{user}@"), 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_take_the_password_of_the_url() {
    let server = || RedisServer::builder().requirepass("hunter2").start();
    let quorum = RedisQuorum::of([server(), server(), server()]);
    quorum.vote("distlock");
    let url = url_of(&quorum, ":hunter2");
    let first = connect_patiently(&url).await.unwrap();
    let second = connect_patiently(&url).await.unwrap();
    works(&quorum, &first, &second).await;
    // One node has another password: `connect` fails, names the node, and shows no secret.
    let odd = quorum.server(2);
    let mut raw = odd.client();
    raw.cmd(&["CONFIG", "SET", "requirepass", "another"]);
    let named = format!("{HOST}:{}", odd.port());
    is_refused(&url, &named).await;
    is_refused(&url, "WRONGPASS").await;
    let error = connect_patiently(&url).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    // A lazy manager uses the other two, and reports the reason when too few are left.
    let lazy = LockManager::connect_lazy(&url).unwrap();
    serves(&lazy).await;
    quorum.server(1).kill();
    until_logged(&lazy, &["WRONGPASS", &named]).await;
    raw.cmd(&["CONFIG", "SET", "requirepass", "hunter2"]);
    serves(&lazy).await;
    // A node that requires no password is rejected, too.
    raw.cmd(&["CONFIG", "SET", "requirepass", ""]);
    is_refused(&url, "requirepass").await;
}

/// Gives the user at all nodes the permissions that one server needs. Returns the URL of that user.
fn become_user(quorum: &RedisQuorum) -> String {
    for server in quorum.servers() {
        set_user(&mut server.client(), &all());
    }
    url_of(quorum, &user())
}

/// A node needs the permissions of a single server, and INFO. Without a run id, a script would take
/// its server for a restarted one, which grants nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_needs_the_same_permissions_and_info() {
    let quorum = three();
    let url = become_user(&quorum);
    let first = connect_patiently(&url).await.unwrap();
    let second = connect_patiently(&url).await.unwrap();
    works(&quorum, &first, &second).await;
    let guard = first.lock("held").lease(HELD).acquire().await.unwrap();
    let mut raw = quorum.server(1).client();
    set_user(&mut raw, &[all(), vec!["-info"]].concat());
    is_refused(&url, "the user needs INFO").await;
    // A node that denies INFO during a hold grants again when it allows it.
    raw.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "YES"]);
    until_renewed_twice(&guard).await;
    become_user(&quorum);
    quorum.server(0).kill();
    serves(&second).await;
    guard.release().await.unwrap();
}

/// Each node gets the credentials when it is connected, and again while its connections live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_receive_new_credentials() {
    let quorum = three();
    let nodes: Vec<_> = quorum.servers().iter().collect();
    let _manager = servers_receive_new_credentials(&quorum.url(), &nodes, &["k".to_owned()]).await;
    until_clean(&quorum).await;
}
