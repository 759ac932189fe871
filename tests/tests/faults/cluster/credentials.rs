//! Credentials from a provider, for all servers that a manager uses.

use distlock::{Credentials, LockManager};
use distlock_tests::{RedisCluster, RedisServer, eventually_async};

use crate::credentials::{Vault, add_user, users};
use crate::support::{LONG, ms, taken_once};

/// Each node gets the credentials when it is connected, and again while its connections live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_receives_new_credentials() {
    let cluster = RedisCluster::start(2);
    let nodes: Vec<_> = cluster.nodes().collect();
    servers_receive_new_credentials(&cluster.url(), &nodes, &cluster.key_on_each("k")).await;
}

/// Checks two users in turn on servers with the locks of `keys`, and two connections to each
/// server. The returned manager releases the rest in the background while it lives.
pub(crate) async fn servers_receive_new_credentials(
    url: &str,
    servers: &[&RedisServer],
    keys: &[String],
) -> LockManager {
    for server in servers {
        add_user(&mut server.client(), "one", "first");
        add_user(&mut server.client(), "two", "second");
    }
    let vault = Vault::new("one", "first");
    let builder = vault.builder().credentials_refresh_interval(ms(1_000));
    let manager = builder.connect(url).await.unwrap();
    let mut guards = Vec::new();
    for key in keys {
        guards.push(manager.lock(key).acquire().await.unwrap());
    }
    let are = |user: &str| {
        let mut servers = servers.iter();
        servers.all(|server| users(&mut server.client()) == [user; 2])
    };
    eventually_async(LONG, async || are("one")).await;
    vault.set(Ok(Credentials::new("two", "second")));
    eventually_async(LONG, async || are("two")).await;
    // Neither live nor new connections depend on the old user.
    for server in servers {
        server.client().cmd(&["ACL", "DELUSER", "one"]);
    }
    assert!(are("two"), "none was cut");
    let before = vault.requests();
    for server in servers {
        for kind in ["normal", "pubsub"] {
            let kill = ["CLIENT", "KILL", "TYPE", kind, "SKIPME", "YES"];
            server.client().cmd(&kill);
        }
    }
    eventually_async(LONG, async || are("two")).await;
    let dialed = 2 * servers.len();
    assert!(
        vault.requests() >= before + dialed,
        "one request per connection"
    );
    for guard in guards {
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
    for key in keys {
        taken_once(&manager, key).await;
    }
    manager
}
