//! A primary monitored by sentinels: the current primary has the locks, and calls find it.

use distlock::{Credentials, Error, LockManager, Outage};
use distlock_tests::documents::acl_rules;
use distlock_tests::sentinel::{self, Sentinels};
use distlock_tests::{RedisServer, eventually_async, within};

use crate::support::{
    LONG, acquire_later, assert_config, assert_message_contains, assert_stored, connect,
    expiry_after_renewal, give_back, hand_on, hold, kill, lock_key, ms, ok, taken_once,
    until_clean, until_listening, until_queued,
};

const SERVICE: &str = Sentinels::SERVICE;

/// Waits until both servers have the same value at a key.
async fn until_copied(all: &Sentinels, key: &str) {
    eventually_async(LONG, async || {
        let [first, second] = [0, 1].map(|place| all.servers[place].client().get(key));
        first.is_some() && first == second
    })
    .await;
}

/// A replicated hold continues at the new primary: it is renewed, and handed off in order.
async fn fails_over(all: &Sentinels, change: impl FnOnce(&RedisServer)) {
    let (first, second) = (connect(&all.url()).await, connect(&all.url()).await);
    let old = &all.servers[0];
    // The lease outlasts the failover, and is renewed within the test.
    let guard = hold(&first, "k", ms(15_000)).await;
    let waiting = acquire_later(&second, "k", ms(15_000), LONG * 3);
    until_queued(&mut old.client(), "k", 1).await;
    until_copied(all, &lock_key("k")).await;
    change(old);
    let mut raw = all.until_another(old).client();
    // A renewal at the new primary extends the remaining time.
    expiry_after_renewal(&mut raw, "k").await;
    assert!(guard.is_held(), "{:?}", guard.lost().await);
    until_queued(&mut raw, "k", 1).await;
    hand_on(guard, waiting, &mut raw).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_leave_a_killed_primary_for_the_promoted_replica() {
    fails_over(&Sentinels::start(), RedisServer::kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_command_keeps_all_replicated_locks() {
    let all = Sentinels::start();
    let ordered = |_: &RedisServer| {
        let ordered = all.sentinels[0]
            .client()
            .cmd(&["SENTINEL", "FAILOVER", SERVICE]);
        assert!(!ordered.is_error(), "{ordered:?}");
    };
    fails_over(&all, ordered).await;
}

/// Clients leave a frozen primary. When it wakes up, it considers itself the primary for a while,
/// and no client uses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_old_primary_receives_no_commands() {
    let all = Sentinels::start();
    let old = &all.servers[0];
    let manager = connect(&all.url()).await;
    let short = hold(&manager, "short", ms(400)).await;
    fails_over(&all, RedisServer::stop_process).await;
    // The hold could not be renewed in time, and stays lost.
    assert!(!short.is_held());
    let lost = short.release().await.unwrap_err();
    assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
    old.cont_process();
    for number in 0..200 {
        taken_once(&manager, &format!("after-{number}")).await;
    }
    // The old primary copies the new one in the end, so only the new one's keys prove anything.
    let mut raw = all.until_another(old).client();
    assert_eq!(raw.keys("distlock:fence:{after-*").len(), 200);
    manager.shutdown().await;
}

/// A connection to a frozen primary is established when it wakes up, after another server has
/// become the primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connect_in_flight_does_not_end_at_an_old_primary() {
    let all = Sentinels::start();
    let old = &all.servers[0];
    old.stop_process();
    let managers: Vec<_> = (0..4)
        .map(|_| LockManager::connect_lazy(&all.url()).unwrap())
        .collect();
    let mut raw = all.until_another(old).client();
    old.cont_process();
    // The sentinels do not demote the old primary for eight seconds.
    until_listening(&mut raw, managers.len(), ms(5_000)).await;
}

/// A lock that needs the replica's acknowledgement survives its promotion. A lock without the
/// acknowledgement was not held yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_holds_survive_a_failover() {
    let all = Sentinels::start();
    let (old, replica) = (&all.servers[0], &all.servers[1]);
    let builder = LockManager::builder().min_replicas(1);
    let manager = builder.connect(&all.url()).await.unwrap();
    let lease = LONG * 2;
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(hold(&manager, &format!("k{number}"), lease).await);
    }
    let mut raw = old.client();
    replica.stop_process();
    // No data is in flight to the replica.
    raw.cmd(&["CLIENT", "KILL", "TYPE", "replica"]);
    let unheard_of = acquire_later(&manager, "unheard of", lease, LONG * 2);
    let at = lock_key("unheard of");
    eventually_async(LONG, async || raw.exists(&at)).await;
    let value = raw.get(&at);
    tokio::time::sleep(ms(100)).await;
    assert!(!unheard_of.is_finished(), "held by the old primary's word");
    old.kill();
    replica.cont_process();
    let new = all.until_another(old);
    let mut raw = new.client();
    assert_ne!(raw.get(&at), value, "the replica received it");
    for guard in &guards {
        assert!(guard.is_held(), "{guard:?}");
        assert_stored(&mut raw, guard);
    }
    // The old primary is now a replica, and holds and waiting calls go on. It comes back empty. A
    // sentinel that found the new primary silent in its first moments would fail over to it.
    all.set_down_after(LONG);
    let is_content = |sentinel| sentinel::info(sentinel, "sentinel").contains("status=ok");
    eventually_async(LONG, async || all.sentinels.iter().all(is_content)).await;
    assert_eq!(all.until_another(old).port(), new.port());
    old.restart();
    sentinel::follow(old, new);
    let guard = within(LONG * 2, unheard_of).await.unwrap().0.unwrap();
    guard.release().await.unwrap();
    for guard in guards {
        let (key, token) = (guard.key().to_owned(), guard.fencing_token());
        guard.release().await.unwrap();
        let guard = hold(&manager, &key, lease).await;
        assert!(guard.fencing_token() > token, "{key}");
        guard.release().await.unwrap();
    }
    // The sentinels may have closed the other connection when they promoted the replica.
    until_clean(&mut new.client(), LONG).await;
}

/// An idle client has no unanswered command, so only the sentinels report the new primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_client_learns_of_the_new_primary() {
    let all = Sentinels::start();
    let _manager = connect(&all.url()).await;
    all.servers[0].stop_process();
    let mut raw = all.until_another(&all.servers[0]).client();
    until_listening(&mut raw, 1, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_sentinels_connections_live_on_and_none_is_opened() {
    let all = Sentinels::start();
    let manager = connect(&all.url()).await;
    let refuses_to_connect = async || {
        let builder = LockManager::builder();
        let refused = builder.connect(&all.url()).await.unwrap_err();
        assert!(refused.is_unavailable(), "{refused:?}");
        for sentinel in &all.sentinels {
            let address = format!("127.0.0.1:{}: ", sentinel.port());
            assert!(refused.to_string().contains(&address), "{refused}");
        }
    };
    let ends: [fn(&RedisServer); 2] = [RedisServer::stop_process, RedisServer::kill];
    for end in ends {
        all.sentinels.iter().for_each(end);
        refuses_to_connect().await;
    }
    taken_once(&manager, "k").await;
    for kind in ["normal", "pubsub"] {
        kill(&mut all.servers[0].client(), kind);
    }
    let refused = manager.lock("k").wait(ms(700)).acquire().await.unwrap_err();
    assert!(refused.is_unavailable(), "{refused:?}");
    assert_message_contains(&refused, &["no sentinel of `locks` reports a primary"]);
    let waiting = acquire_later(&manager, "k", ms(5_000), LONG);
    all.sentinels.iter().for_each(RedisServer::restart);
    give_back(waiting).await;
}

/// Makes a sentinel take another server for the primary.
fn watch_instead(sentinel: &RedisServer, primary: &RedisServer) {
    sentinel.client().cmd(&["SENTINEL", "REMOVE", SERVICE]);
    sentinel::watch(sentinel, SERVICE, primary);
}

/// A sentinel that is cut off from the others knows an old primary, so it does not outweigh them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_names_another_primary_is_outvoted() {
    let all = Sentinels::start();
    let stray = RedisServer::start();
    for odd in &all.sentinels {
        watch_instead(odd, &stray);
        for _ in 0..5 {
            let manager = connect(&all.url()).await;
            taken_once(&manager, "k").await;
        }
        assert!(stray.client().keys("*").is_empty());
        watch_instead(odd, &all.servers[0]);
    }
}

/// The sentinels and the servers have different passwords.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_have_credentials_of_their_own() {
    let server = RedisServer::builder()
        .requirepass("hunter2")
        .arg("--masterauth", "hunter2");
    let sentinel = RedisServer::builder().sentinel().requirepass("hunter3");
    let all = Sentinels::of(&server, &sentinel);
    let url = all.url_of("redis+sentinel://:hunter2@", SERVICE);
    let builder = LockManager::builder();
    let wrong = Credentials::from_password("hunter22");
    for builder in [builder.clone(), builder.clone().sentinel_credentials(wrong)] {
        let error = builder.connect(&url).await.unwrap_err();
        assert_config(&error, &["`sentinel_credentials`"]);
    }
    let right = builder.sentinel_credentials(Credentials::from_password("hunter3"));
    assert!(!format!("{right:?}").contains("hunter"));
    let manager = right.clone().connect(&url).await.unwrap();
    taken_once(&manager, "k").await;
    // Without the permission for ROLE, the server that the sentinels report is the primary.
    ok(
        &mut all.servers[0].client(),
        &["ACL", "SETUSER", "default", "-role"],
    );
    taken_once(&right.connect(&url).await.unwrap(), "k").await;
}

/// Sentinels may name a server that has become a replica, and a replica may accept writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_writes_is_no_primary() {
    let primary = RedisServer::start();
    let port = primary.port().to_string();
    let writable = RedisServer::builder().arg("--replica-read-only", "no");
    let replica = writable.args(["--replicaof", "127.0.0.1", &port]).start();
    let watcher = RedisServer::builder().sentinel().start();
    sentinel::watch(&watcher, SERVICE, &replica);
    let url = format!("redis+sentinel://127.0.0.1:{}/{SERVICE}", watcher.port());
    let builder = LockManager::builder().connect_timeout(ms(4_000));
    let refused = builder.connect(&url).await.unwrap_err();
    assert_eq!(refused.outage(), Some(Outage::ReadOnly));
    let address = format!("redis://127.0.0.1:{}: ", replica.port());
    assert_message_contains(&refused, &[&address]);
}

/// The permissions in docs/operations/topologies.md suffice at a sentinel, and each of them is
/// needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_permissions_suffice_at_sentinels_and_each_is_needed() {
    let page = include_str!("../../../docs/operations/topologies.md");
    let permissions = acl_rules(page).swap_remove(0);
    let all = Sentinels::start();
    let connect = async |missing: &str| {
        let mut words = vec!["ACL", "SETUSER", "distlock", "reset", "on", ">PASSWORD"];
        words.extend(
            permissions
                .iter()
                .filter(|permission| **permission != missing),
        );
        for sentinel in &all.sentinels {
            let set = sentinel.client().cmd(&words);
            // Before Redis 7.0 a user with all channels cannot be given single ones.
            let is_given_all = missing == "resetchannels";
            assert!(!set.is_error() || is_given_all, "{words:?}: {set:?}");
        }
        let builder = LockManager::builder().connect_timeout(ms(4_000));
        let credentials = Credentials::new("distlock", "PASSWORD");
        builder
            .sentinel_credentials(credentials)
            .connect(&all.url())
            .await
    };
    let listens = || {
        let list = all.sentinels[0].client().cmd(&["CLIENT", "LIST"]);
        let list = list.text().expect("a list").to_owned();
        list.lines()
            .any(|client| client.contains("user=distlock") && client.contains(" sub=1"))
    };
    let manager = connect("").await.unwrap();
    eventually_async(LONG, async || listens()).await;
    taken_once(&manager, "k").await;
    manager.shutdown().await;
    eventually_async(LONG, async || !listens()).await;
    for &permission in &permissions {
        match (permission, connect(permission).await) {
            // The reset has already taken these away.
            ("resetchannels" | "-@all", _) => {}
            // The client finds the primary, but does not learn of another one.
            ("+subscribe" | "&+switch-master", Ok(manager)) => {
                taken_once(&manager, "k").await;
                assert!(!listens(), "without {permission}");
                manager.shutdown().await;
            }
            (_, Err(refused)) => assert_config(&refused, &["NOPERM"]),
            (_, Ok(_)) => panic!("{permission} is not needed"),
        }
    }
}

/// One of the two remaining sentinels is cut off or wrong, and a client cannot know which.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disagreeing_sentinels_without_a_majority_are_not_followed() {
    let all = Sentinels::start();
    let stray = RedisServer::start();
    let manager = connect(&all.url()).await;
    all.sentinels[2].kill();
    watch_instead(&all.sentinels[1], &stray);
    let refused = LockManager::builder().connect(&all.url()).await;
    let refused = refused.unwrap_err();
    assert!(refused.is_unavailable(), "{refused:?}");
    let stray_port = stray.port().to_string();
    assert_message_contains(&refused, &["disagree about the primary", &stray_port]);
    taken_once(&manager, "k").await;
    assert!(stray.client().keys("*").is_empty());
}

/// One sentinel has lost the service, and repeated requests do not restore it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_without_the_primary_is_queried_with_backoff() {
    let all = Sentinels::start();
    let forgetful = &all.sentinels[1];
    forgetful.client().cmd(&["SENTINEL", "REMOVE", SERVICE]);
    let manager = connect(&all.url()).await;
    // Client ids count connections, including this one.
    let dialed = || forgetful.client().cmd(&["CLIENT", "ID"]).int();
    let before = dialed();
    tokio::time::sleep(ms(3_000)).await;
    let more = dialed() - before;
    assert!(more < 15, "{more} connections in three seconds");
    taken_once(&manager, "k").await;
}

/// A frozen sentinel delays nothing. A frozen primary is not waited for; the sentinels are asked
/// once more for the primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_connects_although_a_sentinel_or_the_primary_is_frozen() {
    let all = Sentinels::start();
    all.sentinels[1].stop_process();
    let manager = within(LONG, connect(&all.url())).await;
    taken_once(&manager, "k").await;
    all.sentinels[1].cont_process();
    all.servers[0].stop_process();
    let manager = within(LONG * 2, connect(&all.url())).await;
    let guard = hold(&manager, "k", LONG).await;
    assert!(all.servers[1].client().exists(&lock_key("k")));
    guard.release().await.unwrap();
}
