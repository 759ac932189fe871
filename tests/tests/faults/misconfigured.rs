//! Misconfigurations: connecting fails at once, with an error that is not an outage and
//! names a remedy. So do calls that cannot work.

use std::io::Write as _;
use std::time::{Duration, Instant};

use distlock::{Error, LockManager, Tls};
use distlock_tests::garbage::{Frame, Impostor, Reaction, Then};
use distlock_tests::{
    Monitor, Proxy, RedisQuorum, RedisServer, RedisServerBuilder, eventually_async,
};

use crate::support::{
    HELD, LONG, accepted, acquire_later, acquired, assert_config, assert_message_contains, connect,
    connect_patiently, hold, ms, ok, taken_once, until_queued, until_renewed_twice,
};
use crate::tls::Trust;

/// Long enough that only an immediate failure comes before it.
const CONNECT_TIMEOUT: Duration = ms(10_000);

/// Connects to each URL, and expects a misconfiguration at once, with all parts in its text.
async fn assert_misconfigured(rows: &[(&str, String, &[&str])]) {
    let began = Instant::now();
    assert_misconfigured_within(CONNECT_TIMEOUT, rows).await;
    assert!(began.elapsed() < CONNECT_TIMEOUT, "not at once");
}

/// The same for misconfigurations that may be found only at the end of the connect timeout.
async fn assert_misconfigured_within(timeout: Duration, rows: &[(&str, String, &[&str])]) {
    for (state, url, parts) in rows {
        let mut builder = LockManager::builder();
        if url.starts_with("rediss") {
            builder = builder.tls(Tls::new());
        }
        let connected = builder.connect_timeout(timeout).connect(url).await;
        let error = connected.err();
        let error = error.unwrap_or_else(|| panic!("{state}: {url} was connected to"));
        println!("{state}: {error}");
        assert_config(&error, parts);
        // This is the remedy of another misconfiguration.
        assert!(!error.to_string().contains("permissions and password"));
    }
}

/// Starts a server that replies to everything as an HTTP server replies to other protocols.
fn http_server() -> Impostor {
    Impostor::start(|_, _| {
        Some(Reaction {
            bytes: b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec(),
            then: Then::Close,
        })
    })
}

/// Starts a server without HELLO, like Redis before 6.0.
fn redis_5() -> Impostor {
    Impostor::start(|name, _| match name {
        "HELLO" => Some(Frame::error("ERR unknown command `HELLO`, with args").into()),
        "INFO" => Some(Frame::text("# Server\r\nredis_version:5.0.14\r\n").into()),
        _ => None,
    })
}

/// The same servers as a single server, as sentinels, as nodes of a cluster and as quorum nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_protocol_in_every_topology() {
    let (http, old) = (http_server(), redis_5());
    let tls = Trust::new().server().start();
    let [http, old] = [http.url(), old.url()].map(|url| url.replace("redis://", ""));
    let encrypted = format!("127.0.0.1:{}", tls.tls_port());
    let plain = format!("127.0.0.1:{}", tls.port());
    let quorum = RedisQuorum::start(2);
    let nodes = quorum.url().replace("redis+quorum://", "");
    for (scheme, others, path) in [
        ("", String::new(), ""),
        ("+sentinel", String::new(), "/service"),
        ("+cluster", String::new(), ""),
        ("+quorum", format!("{nodes},"), ""),
    ] {
        let of = |address| format!("redis{scheme}://{others}{address}{path}");
        let http_says: &[&str] = &["HTTP/1.1 400 Bad Request", "fix host and port"];
        let mut rows = vec![("an HTTP server", of(&http), http_says)];
        if scheme != "+sentinel" {
            let parts = &["Redis 5.0.14", "use Redis 6.2 or later"];
            rows.push(("Redis 5", of(&old), parts));
        }
        // The two other servers are enough for a quorum.
        if scheme != "+quorum" {
            let missing: &[&str] = &["write rediss:// instead"];
            let too_much: &[&str] = &["write redis:// instead"];
            let secured = format!("rediss{scheme}://{plain}{path}");
            let mixed_up = [
                ("TLS is missing", of(&encrypted), missing),
                ("TLS is too much", secured, too_much),
            ];
            assert_misconfigured_within(ms(1_500), &mixed_up).await;
        }
        assert_misconfigured(&rows).await;
    }
}

/// Servers that end the connection, or wait for more. They may be a stopped Redis, so this is an
/// outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_reply() {
    let listeners = [(); 3].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = [0, 1, 2].map(|i| listeners[i].local_addr().unwrap());
    let [_silent, closing, mail] = listeners;
    std::thread::spawn(move || closing.incoming().for_each(drop));
    std::thread::spawn(move || {
        let greeted = mail.incoming().map(|connection| {
            let mut connection = connection.unwrap();
            let _ = connection.write_all(b"+OK POP3\r\n-ERR unknown command\r\n");
            connection
        });
        greeted.collect::<Vec<_>>()
    });
    let found = ["does not reply;", "closes them", "does not reply as"];
    for (address, part) in addresses.into_iter().zip(found) {
        for url in [
            format!("redis://{address}"),
            format!("redis+sentinel://{address}/service"),
            format!("redis+cluster://{address}"),
        ] {
            let builder = LockManager::builder().connect_timeout(ms(500));
            let error = builder.connect(&url).await.unwrap_err();
            assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
            let found = format!("{address} accepts connections, and {part}");
            assert_message_contains(&error, &[&found, "check that host and port in the URL"]);
        }
    }
    let error = LockManager::connect("redis://127.0.0.1:1").await;
    assert!(!error.unwrap_err().to_string().contains("accepts"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_kind() {
    let node = || RedisServer::builder().arg("--cluster-enabled", "yes");
    let (empty, whole, single) = (node().start(), node().start(), RedisServer::start());
    // The node executes everything while no slot has moved away.
    let all = ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"];
    ok(&mut whole.client(), &all);
    eventually_async(LONG, async || {
        let info = whole.client().cmd(&["CLUSTER", "INFO"]);
        info.text().unwrap().contains("cluster_state:ok")
    })
    .await;
    let sentinel = RedisServer::builder().sentinel().start();
    let cluster: &[&str] = &["write redis+cluster://"];
    assert_misconfigured(&[
        ("a node without slots", empty.url(), cluster),
        ("a node with all slots", whole.url(), cluster),
        (
            "a node and a database",
            format!("{}/3", empty.url()),
            cluster,
        ),
        (
            "a sentinel",
            sentinel.url(),
            &["the server is a sentinel", "write redis+sentinel://"],
        ),
        (
            "a service that no sentinel knows",
            sentinel.url().replace("redis://", "redis+sentinel://") + "/orders",
            &["do not know the service `orders`"],
        ),
        (
            "no cluster",
            single.url().replace("redis://", "redis+cluster://"),
            &["cluster-enabled", "write redis://"],
        ),
        (
            "no sentinel",
            single.url().replace("redis://", "redis+sentinel://") + "/service",
            &["not a sentinel", "write redis://"],
        ),
        (
            "no such database",
            format!("{}/99", single.url()),
            &[
                "database 99",
                "below the server's `databases`",
                &single.port().to_string(),
            ],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_and_permissions() {
    let (open, guarded) = (
        RedisServer::start(),
        RedisServer::builder().requirepass("right").start(),
    );
    let port = guarded.port();
    let at = |user: &str| format!("redis://{user}127.0.0.1:{port}");
    let (wrong, unasked): (&[&str], &[&str]) = (
        &["fix user and password in the URL", &port.to_string()],
        &["requirepass", "remove the password"],
    );
    assert_misconfigured(&[
        ("no password", at(""), &["write the password into the URL"]),
        ("a wrong password", at(":hunter2@"), wrong),
        ("a wrong password by name", at("default:hunter2@"), wrong),
        ("no such user", at("absent:right@"), wrong),
        (
            "a password that is not asked for",
            format!("redis://:hunter2@127.0.0.1:{}", open.port()),
            unasked,
        ),
        (
            "the same by name",
            format!("redis://default:hunter2@127.0.0.1:{}", open.port()),
            unasked,
        ),
    ])
    .await;
    LockManager::connect(&guarded.url()).await.unwrap();
    for (permissions, path, needs) in [
        ("~* &* +@all -subscribe", "", "SUBSCRIBE"),
        ("~* resetchannels +@all -debug", "", "SUBSCRIBE"),
        ("~* &* +@all -eval", "", "EVAL"),
        ("~* &* +@all -evalsha", "", "EVALSHA"),
        ("~* &* +@all -@scripting", "", "EVAL"),
        ("~other:* &* +@all", "", "keys"),
        ("~* &* +@all -select", "/1", "+select"),
    ] {
        let words = ["ACL", "SETUSER", "app", "reset", "on", ">hunter2"];
        let words: Vec<_> = words.into_iter().chain(permissions.split(' ')).collect();
        ok(&mut open.client(), &words);
        let url = format!("redis://app:hunter2@127.0.0.1:{}{path}", open.port());
        assert_misconfigured(&[(permissions, url, &[needs, "grant"])]).await;
    }
}

/// Starts a server that does not know a command.
fn without(command: &str) -> RedisServerBuilder {
    RedisServer::builder().args(["--rename-command", command, ""])
}

/// `rename-command` takes a command away from every user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_locks_need_is_unknown() {
    let needed = "SUBSCRIBE EVAL EVALSHA TIME DEL GET MGET EXISTS PTTL PEXPIRE ZRANGE ZSCORE ZCARD ZREM HGET HMGET HDEL SET \
                  ZADD";
    for command in needed.split(' ') {
        let server = without(command).start();
        let unknown = format!("does not know {command},");
        let says = [&*unknown, "remove its `rename-command`"];
        assert_misconfigured(&[(command, server.url(), &says)]).await;
    }
    let node = |command| {
        let server = without(command).arg("--cluster-enabled", "yes").start();
        let added = server
            .client()
            .cmd(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        assert_eq!(added.is_error(), command == "CLUSTER", "{added:?}");
        server
    };
    let (cluster, publishes) = (node("CLUSTER"), node("SSUBSCRIBE"));
    let (select, hello) = (without("SELECT"), without("HELLO").requirepass("right"));
    let (select, hello) = (select.start(), hello.start());
    let in_cluster = |server: &RedisServer| server.url().replace("redis://", "redis+cluster://");
    let hello_at = |user: &str| format!("redis://{user}127.0.0.1:{}", hello.port());
    let is_refused = async |url, says: &[&str]| assert_misconfigured(&[(says[0], url, says)]).await;
    let says = ["does not know CLUSTER,", "`rename-command`"];
    is_refused(in_cluster(&cluster), &says).await;
    let says = ["do not know SSUBSCRIBE", "`rename-command`", "7.0"];
    is_refused(in_cluster(&publishes), &says).await;
    let says = ["does not know SELECT", "without a database"];
    is_refused(format!("{}/1", select.url()), &says).await;
    is_refused(hello_at(""), &["write the password into the URL"]).await;
    let says = ["fix user and password in the URL"];
    is_refused(hello_at(":hunter2@"), &says).await;
    // A command that only waiters need is named by the call that needs it.
    let server = without("HSET").start();
    let manager = connect(&server.url()).await;
    let _held = hold(&manager, "k", LONG).await;
    let error = manager.lock("k").wait(LONG).acquire().await.unwrap_err();
    assert!(error.is_unavailable() && !error.is_retryable(), "{error:?}");
    assert_message_contains(&error, &["remove its `rename-command`"]);
}

/// Without the others, locks work and are handed off. Without HELLO, waiting calls poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_locks_can_do_without_is_unknown() {
    for command in [
        "HELLO", "INFO", "PING", "PUBLISH", "PUBSUB", "SCRIPT", "ROLE", "AUTH",
    ] {
        let server = without(command).start();
        let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
        let mut raw = server.client();
        let guard = hold(&first, "k", HELD).await;
        let waiting = acquire_later(&second, "k", HELD, LONG);
        until_queued(&mut raw, "k", 1).await;
        let before = (command != "INFO").then(|| accepted(&mut raw));
        until_renewed_twice(&guard).await;
        let after = (command != "INFO").then(|| accepted(&mut raw));
        assert_eq!(before, after, "{command}: connections are replaced");
        guard.release().await.unwrap();
        acquired(waiting).await.release().await.unwrap();
        println!("{command}: works");
    }
}

/// A lazy manager reports the misconfiguration from its first call. A manager that was connected
/// waits for the right server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_background() {
    let (server, http) = (RedisServer::start(), http_server());
    let lazy = LockManager::connect_lazy(&http.url()).unwrap();
    let error = lazy.lock("k").wait(LONG).acquire().await.unwrap_err();
    assert!(error.is_unavailable() && !error.is_retryable(), "{error:?}");
    assert_message_contains(&error, &["fix host and port"]);

    // This proxy also passes on data that is not RESP.
    let proxy = Proxy::start_sealed(server.addr());
    let manager = LockManager::connect(&proxy.url()).await.unwrap();
    taken_once(&manager, "k").await;
    let url = http.url();
    let port: u16 = url.rsplit(':').next().unwrap().parse().unwrap();
    proxy.move_to(([127, 0, 0, 1], port).into());
    proxy.reset_connections();
    eventually_async(LONG, async || {
        let error = manager.lock("k").wait(ms(300)).acquire().await.unwrap_err();
        assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
        error
            .to_string()
            .contains("does not speak the Redis protocol")
    })
    .await;
    proxy.move_to(server.addr());
    let guard = hold(&manager, "k", LONG).await;
    guard.release().await.unwrap();
}

/// The error names the remedy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_calls_of_each_kind_send_nothing() {
    let (server, servers) = (RedisServer::start(), RedisQuorum::start(3));
    servers.vote("distlock");
    let manager = connect(&server.url()).await;
    let quorum = connect_patiently(servers.url()).await.unwrap();
    let lock = manager.rw_lock("bad");
    let reading = lock.read().await.unwrap();
    let monitored = servers.servers().iter().chain([&server]);
    let mut monitors: Vec<_> = monitored.map(Monitor::start).collect();

    let mut rows: Vec<(Result<(), Error>, &str)> = Vec::new();
    let mut values: Vec<(Result<(), Error>, &str)> = Vec::new();
    for (permits, weight, remedy) in [
        (0, 1, "set it to at least 1 and at most 1000"),
        (1_001, 1, "set it to at least 1 and at most 1000"),
        (3, 0, "at most the number of permits, 3"),
        (3, 4, "at most the number of permits, 3"),
    ] {
        let semaphore = manager.semaphore("bad", permits);
        let refused = if permits == 3 { &mut values } else { &mut rows };
        refused.push((semaphore.acquire_many(weight).await.map(drop), remedy));
        let tried = semaphore.try_acquire_many(weight).await;
        refused.push((tried.map(drop), remedy));
    }
    for (count, remedy) in [(0, "at least one key"), (65, "at most 64")] {
        let all = manager.lock_all((0..count).map(|number| format!("bad{number}")));
        values.push((all.acquire().await.map(drop), remedy));
        values.push((all.try_acquire().await.map(drop), remedy));
    }
    let invalid = manager.lock_all(["bad", "bad{c"]).acquire().await;
    assert!(
        matches!(invalid, Err(Error::InvalidKey { .. })),
        "{invalid:?}"
    );
    let (semaphore, of_quorum) = (quorum.semaphore("bad", 3), quorum.rw_lock("bad"));
    let remedy = "use `lock`, or a single server or a cluster";
    for result in [
        semaphore.acquire().await.map(drop),
        semaphore.try_acquire().await.map(drop),
        of_quorum.read().await.map(drop),
        of_quorum.try_read().await.map(drop),
        of_quorum.write().await.map(drop),
        of_quorum.try_write().await.map(drop),
    ] {
        rows.push((result, remedy));
    }
    for (result, remedy) in rows {
        assert_config(&result.unwrap_err(), &[remedy]);
    }
    for (result, remedy) in values {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::InvalidValue { .. }), "{error:?}");
        assert_message_contains(&error, &[remedy]);
    }
    for result in [
        reading.scope(lock.write()).await.map(drop),
        reading.scope(lock.try_write()).await.map(drop),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::UpgradeDeadlock { .. }), "{error:?}");
        assert_message_contains(&error, &["acquire the write"]);
    }
    let mut reached = || {
        let counts = monitors.iter_mut().map(|it| it.count(":fence:{bad"));
        counts.filter(|count| *count > 0).count()
    };
    assert_eq!(reached(), 0, "servers");
    // A possible call reaches its server, or at least two of the quorum.
    assert!(lock.try_write().await.unwrap().is_none());
    let most = manager.semaphore("most", 1_000);
    assert!(most.try_acquire_many(1_000).await.unwrap().is_some());
    let most = manager.lock_all((0..64).map(|number| format!("most{number}")));
    assert!(most.try_acquire().await.unwrap().is_some());
    assert!(quorum.lock("bad").try_acquire().await.unwrap().is_some());
    assert!(reached() >= 3);
}
