//! A master under the watch of sentinels: whoever is the master keeps the locks, and calls find it.

use distlock::{Credentials, Error, LockManager, Outage};
use distlock_tests::sentinel::{self, Sentinels};
use distlock_tests::{RedisServer, eventually_async, within};

use crate::kit::{
    LONG, acquire_later, connect, give_back, lock_key, ms, taken_once, until_clean, until_queued,
};

const SERVICE: &str = Sentinels::SERVICE;

/// Waits until what stands at a key is the same on all servers.
async fn until_copied(all: &Sentinels, key: &str) {
    let values = || {
        all.servers
            .iter()
            .map(|server| server.client().cmd(&["GET", key]))
    };
    eventually_async(LONG, async || {
        let mut values = values();
        let first = values.next().unwrap();
        first.text().is_some() && values.all(|value| value == first)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_leads_to_its_master() {
    let all = Sentinels::start();
    let (first, second) = (
        connect(&all.url()).await,
        LockManager::connect_lazy(all.url()).unwrap(),
    );
    let mut raw = all.servers[0].client();
    let guard = first.lock("k").acquire().await.unwrap();
    assert!(raw.exists(&lock_key("k")));
    let waiting = acquire_later(&second, "k", ms(2_000), LONG);
    until_queued(&mut raw, "k", 1).await;
    guard.release().await.unwrap();
    give_back(waiting).await;
    until_clean(&mut raw, LONG).await;
}

/// What was copied is held on at the new master: renewed, waited for in order, handed on.
async fn goes_over(all: &Sentinels, change: impl FnOnce(&RedisServer)) {
    let (first, second) = (connect(&all.url()).await, connect(&all.url()).await);
    let old = &all.servers[0];
    // A lease that outlasts the failover, and is renewed within the test.
    let guard = first.lock("k").lease(ms(15_000)).acquire().await.unwrap();
    let waiting = acquire_later(&second, "k", ms(15_000), LONG * 3);
    until_queued(&mut old.client(), "k", 1).await;
    until_copied(all, &lock_key("k")).await;
    let copied = all.servers[1]
        .client()
        .cmd(&["ZCARD", "distlock:queue:{k}"])
        .int();
    change(old);
    let mut raw = all.until_another(old).client();
    println!("{copied} in the queue had been copied");
    let mut left = raw.cmd(&["PTTL", &lock_key("k")]).int();
    assert!(left > 0, "{left} ms left at the new master");
    // Renewed there: more is left than just before.
    eventually_async(LONG, async || {
        let before = left;
        left = raw.cmd(&["PTTL", &lock_key("k")]).int();
        left > before
    })
    .await;
    assert!(guard.is_held(), "{:?}", guard.lost().await);
    until_queued(&mut raw, "k", 1).await;
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let next = waiting.await.unwrap().0.unwrap();
    assert!(next.fencing_token() > token);
    next.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_is_left_for_the_promoted_replica() {
    goes_over(&Sentinels::start(), RedisServer::kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_command_loses_nothing_that_was_copied() {
    let all = Sentinels::start();
    let ordered = |_: &RedisServer| {
        let ordered = all.sentinels[0]
            .client()
            .cmd(&["SENTINEL", "FAILOVER", SERVICE]);
        assert!(!ordered.is_error(), "{ordered:?}");
    };
    goes_over(&all, ordered).await;
}

/// A frozen master is left; awake again it believes to be the master for a while, and nobody asks it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ghost_of_a_master_is_asked_for_nothing() {
    let all = Sentinels::start();
    let old = &all.servers[0];
    let manager = connect(&all.url()).await;
    let short = manager
        .lock("short")
        .lease(ms(400))
        .acquire()
        .await
        .unwrap();
    goes_over(&all, RedisServer::stop_process).await;
    // Nobody could renew it in time, and it stays lost.
    assert!(!short.is_held());
    let lost = short.release().await.unwrap_err();
    assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
    old.cont_process();
    for number in 0..200 {
        let lock = manager.lock(format!("after-{number}"));
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    // Demoted in the end, it has what the new master has, so what it had is asked for at once.
    let mut raw = all.until_another(old).client();
    assert_eq!(raw.keys("distlock:fence:{after-*").len(), 200);
    manager.shutdown().await;
}

/// A connection that was being opened to a frozen master is there when it wakes up, and the master is another by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dial_that_was_under_way_does_not_end_at_a_ghost() {
    let all = Sentinels::start();
    let old = &all.servers[0];
    old.stop_process();
    let managers: Vec<_> = (0..4)
        .map(|_| LockManager::connect_lazy(all.url()).unwrap())
        .collect();
    let mut raw = all.until_another(old).client();
    old.cont_process();
    // The sentinels let the ghost be for eight seconds.
    let channels = ["PUBSUB", "CHANNELS", "distlock:client:*"];
    let count = managers.len();
    eventually_async(ms(5_000), async || {
        raw.cmd(&channels).array().len() == count
    })
    .await;
}

/// What counts only once the replica has it is there when that becomes the master; what had not been acknowledged was
/// nobody's yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_replica_acknowledged_outlasts_a_failover() {
    let all = Sentinels::start();
    let (old, replica) = (&all.servers[0], &all.servers[1]);
    let builder = LockManager::builder().url(all.url()).min_replicas(1);
    let manager = builder.connect().await.unwrap();
    let lease = LONG * 2;
    let mut guards = Vec::new();
    for number in 0..20 {
        let lock = manager.lock(format!("k{number}")).lease(lease).wait(LONG);
        guards.push(lock.acquire().await.unwrap());
    }
    let mut raw = old.client();
    replica.stop_process();
    // Nothing is on its way to it any more.
    raw.cmd(&["CLIENT", "KILL", "TYPE", "replica"]);
    let unheard_of = acquire_later(&manager, "unheard of", lease, LONG * 2);
    let at = lock_key("unheard of");
    eventually_async(LONG, async || raw.exists(&at)).await;
    let value = raw.get(&at);
    tokio::time::sleep(ms(100)).await;
    assert!(!unheard_of.is_finished(), "held by the old master's word");
    old.kill();
    replica.cont_process();
    let new = all.until_another(old);
    let mut raw = new.client();
    assert_ne!(raw.get(&at), value, "the replica had heard of it");
    for guard in &guards {
        assert!(guard.is_held(), "{guard:?}");
        let value = raw.get(&lock_key(guard.key())).expect("it is there");
        let token = guard.fencing_token().to_string();
        assert!(value.contains(&token), "{value}");
    }
    // The old one is its replica now, and what is held and asked for goes on. (It comes back empty: a sentinel that found
    // the new one silent in its first moments would fail over to that.)
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
        let guard = manager.lock(&key).wait(LONG).acquire().await.unwrap();
        assert!(guard.fencing_token() > token, "{key}");
        guard.release().await.unwrap();
    }
    // The sentinels may have closed the other connection when they promoted it.
    until_clean(&mut new.client(), LONG).await;
}

/// Nothing is asked, so nothing goes unanswered: only the sentinels tell that the master is another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_nothing_hears_of_the_new_master() {
    let all = Sentinels::start();
    let _manager = connect(&all.url()).await;
    all.servers[0].stop_process();
    let mut raw = all.until_another(&all.servers[0]).client();
    let channels = ["PUBSUB", "CHANNELS", "distlock:client:*"];
    eventually_async(LONG, async || raw.cmd(&channels).array().len() == 1).await;
    all.servers[0].cont_process();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_sentinels_connections_live_on_and_none_is_opened() {
    let all = Sentinels::start();
    let manager = connect(&all.url()).await;
    let refuses_to_connect = async || {
        let builder = LockManager::builder().url(all.url());
        let refused = builder.connect().await.unwrap_err();
        assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
        for sentinel in &all.sentinels {
            let address = format!("127.0.0.1:{}: ", sentinel.port());
            assert!(refused.to_string().contains(&address), "{refused}");
        }
    };
    for sentinel in &all.sentinels {
        sentinel.stop_process();
    }
    refuses_to_connect().await;
    for sentinel in &all.sentinels {
        sentinel.kill();
    }
    refuses_to_connect().await;
    let lock = manager.lock("k");
    lock.acquire().await.unwrap().release().await.unwrap();
    let mut raw = all.servers[0].client();
    for kind in ["normal", "pubsub"] {
        raw.cmd(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
    let refused = manager.lock("k").wait(ms(700)).acquire().await.unwrap_err();
    assert!(refused.is_unavailable(), "{refused:?}");
    assert!(
        refused.to_string().contains("no sentinel of `locks` says"),
        "{refused}"
    );
    let waiting = acquire_later(&manager, "k", ms(5_000), LONG);
    for sentinel in &all.sentinels {
        sentinel.restart();
    }
    give_back(waiting).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_frozen_sentinel_costs_no_call_anything() {
    let all = Sentinels::start();
    all.sentinels[1].stop_process();
    let manager = within(LONG, connect(&all.url())).await;
    taken_once(&manager, "k").await;
    all.sentinels[1].cont_process();
}

/// Cut off from the others it knows an old master; so it does not count more than they do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_names_another_master_is_outvoted() {
    let all = Sentinels::start();
    let stray = RedisServer::start();
    for odd in &all.sentinels {
        odd.client().cmd(&["SENTINEL", "REMOVE", SERVICE]);
        sentinel::watch(odd, SERVICE, &stray);
        for _ in 0..5 {
            let manager = connect(&all.url()).await;
            taken_once(&manager, "k").await;
        }
        assert!(stray.client().keys("*").is_empty());
        odd.client().cmd(&["SENTINEL", "REMOVE", SERVICE]);
        sentinel::watch(odd, SERVICE, &all.servers[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_in_the_url_is_told() {
    let all = Sentinels::start();
    let server = RedisServer::start();
    let sentinel = all.sentinels[0].url();
    for (url, said) in [
        (
            all.url_of("redis+sentinel://", "orders"),
            "do not know a service `orders`",
        ),
        (
            format!("redis+sentinel://127.0.0.1:{}/{SERVICE}", server.port()),
            "it is no sentinel",
        ),
        (sentinel, "it is a sentinel"),
    ] {
        let error = LockManager::connect(&url).await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{url}: {error:?}");
        assert!(error.to_string().contains(said), "{url}: {error}");
    }
}

/// Two passwords: one for the sentinels, one for the servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_have_credentials_of_their_own() {
    let server = RedisServer::builder()
        .requirepass("hunter2")
        .arg("--masterauth", "hunter2");
    let sentinel = RedisServer::builder().sentinel().requirepass("hunter3");
    let all = Sentinels::of(&server, &sentinel);
    let url = all.url_of("redis+sentinel://:hunter2@", SERVICE);
    let builder = LockManager::builder().url(&url);
    let refused = builder.clone().connect().await.unwrap_err();
    assert!(matches!(refused, Error::Config { .. }), "{refused:?}");
    let wrong = builder
        .clone()
        .sentinel_credentials(Credentials::password("hunter4"));
    let wrong = wrong.connect().await.unwrap_err();
    for error in [refused, wrong] {
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("`sentinel_credentials`"), "{shown}");
        assert!(!shown.contains("hunter"), "{shown}");
    }
    let right = builder.sentinel_credentials(Credentials::password("hunter3"));
    assert!(!format!("{right:?}").contains("hunter"));
    let manager = right.connect().await.unwrap();
    taken_once(&manager, "k").await;
}

/// Sentinels may name a server that has become a replica, and a replica may take writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_writes_is_no_master() {
    let master = RedisServer::start();
    let port = master.port().to_string();
    let writable = RedisServer::builder().arg("--replica-read-only", "no");
    let replica = writable.args(["--replicaof", "127.0.0.1", &port]).start();
    let watcher = RedisServer::builder().sentinel().start();
    sentinel::watch(&watcher, SERVICE, &replica);
    let url = format!("redis+sentinel://127.0.0.1:{}/{SERVICE}", watcher.port());
    let builder = LockManager::builder().url(url).connect_timeout(ms(4_000));
    let refused = builder.connect().await.unwrap_err();
    let Error::Unavailable {
        outage: Outage::ReadOnly,
        ..
    } = refused
    else {
        panic!("{refused:?}");
    };
    let address = format!("redis://127.0.0.1:{}: ", replica.port());
    assert!(refused.to_string().contains(&address), "{refused}");
}

/// The rights that docs/topologies.md says are needed at a sentinel: each of them is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_suffice_at_sentinels_and_each_is_needed() {
    let document = include_str!("../../../docs/topologies.md");
    let rule = document
        .lines()
        .find(|line| line.contains("&+switch-master"));
    let rule: Vec<_> = rule.expect("it is there").split_whitespace().collect();
    let ["ACL", "SETUSER", "distlock", "on", ">PASSWORD", rights @ ..] = &rule[..] else {
        panic!("{rule:?}");
    };
    let all = Sentinels::start();
    let connect = async |missing: &str| {
        let mut words = vec!["ACL", "SETUSER", "distlock", "reset", "on", ">PASSWORD"];
        words.extend(rights.iter().filter(|right| **right != missing));
        for sentinel in &all.sentinels {
            let set = sentinel.client().cmd(&words);
            // Before Redis 7.0 a user may have all channels, and then no others.
            let is_given_all = missing == "resetchannels";
            assert!(!set.is_error() || is_given_all, "{words:?}: {set:?}");
        }
        let builder = LockManager::builder()
            .url(all.url())
            .connect_timeout(ms(4_000));
        let credentials = Credentials::new("distlock", "PASSWORD");
        builder.sentinel_credentials(credentials).connect().await
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
    for right in rights {
        match (*right, connect(right).await) {
            // What is taken away here is taken away to begin with.
            ("resetchannels" | "-@all", _) => {}
            // It finds the master and does not hear of another one.
            ("+subscribe" | "&+switch-master", Ok(manager)) => {
                taken_once(&manager, "k").await;
                assert!(!listens(), "without {right}");
                manager.shutdown().await;
            }
            (_, Err(refused)) => {
                assert!(
                    matches!(refused, Error::Config { .. }),
                    "{right}: {refused:?}"
                );
                assert!(refused.to_string().contains("NOPERM"), "{right}: {refused}");
            }
            (_, Ok(_)) => panic!("{right} is not needed"),
        }
    }
}

/// Of those who are left one is cut off, or mistaken, and nobody can say which.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_sentinels_that_disagree_lead_nowhere() {
    let all = Sentinels::start();
    let stray = RedisServer::start();
    let manager = connect(&all.url()).await;
    all.sentinels[2].kill();
    let odd = &all.sentinels[1];
    odd.client().cmd(&["SENTINEL", "REMOVE", SERVICE]);
    sentinel::watch(odd, SERVICE, &stray);
    let refused = LockManager::builder().url(all.url()).connect().await;
    let refused = refused.unwrap_err();
    assert!(refused.is_unavailable(), "{refused:?}");
    let said = refused.to_string();
    assert!(said.contains("do not agree where the master is"), "{said}");
    assert!(said.contains(&stray.port().to_string()), "{said}");
    taken_once(&manager, "k").await;
    assert!(stray.client().keys("*").is_empty());
}

/// One of them has forgotten the service, and will not remember it because it is asked again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_knows_nothing_is_asked_less_and_less_often() {
    let all = Sentinels::start();
    let forgetful = &all.sentinels[1];
    forgetful.client().cmd(&["SENTINEL", "REMOVE", SERVICE]);
    let manager = connect(&all.url()).await;
    // Each connection has a number, and this one as well.
    let dialed = || forgetful.client().cmd(&["CLIENT", "ID"]).int();
    let before = dialed();
    tokio::time::sleep(ms(3_000)).await;
    let more = dialed() - before;
    assert!(more < 15, "{more} connections in three seconds");
    taken_once(&manager, "k").await;
}

/// What connects to it is not answered, and asks once more where the master is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_connects_does_not_wait_for_a_frozen_master() {
    let all = Sentinels::start();
    all.servers[0].stop_process();
    let builder = LockManager::builder().url(all.url()).connect_timeout(LONG);
    let manager = within(LONG * 2, builder.connect()).await.unwrap();
    let guard = manager.lock("k").acquire().await.unwrap();
    assert!(all.servers[1].client().exists(&lock_key("k")));
    guard.release().await.unwrap();
    all.servers[0].cont_process();
}
