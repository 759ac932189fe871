//! How many connections a client opens while something is wrong with the server.

use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_tests::garbage::{Frame, Impostor, Reaction, Then};
use distlock_tests::{Proxy, RedisServer, Resp};
use futures::future::join_all;

use crate::support::{connect, kill, ms, ok, taken_once};

const WINDOW: Duration = ms(4_000);

/// Returns the documented limit of connections to one server, with some that had begun before.
fn allowed(elapsed: Duration) -> f64 {
    16.0 + 5.0 * elapsed.as_secs_f64()
}

/// What goes wrong. Except for the first, all connections are lost then.
enum Fault {
    /// This happens every few milliseconds.
    Repeated(fn(&Proxy, &mut Resp)),
    Configured(&'static [&'static str]),
    /// The address leads to this server from now on.
    Moved(Impostor),
    Killed,
}

/// Replaces the server by one that reacts differently to a command.
fn reacting(command: &'static str, reaction: impl Into<Reaction>) -> Fault {
    let reaction = reaction.into();
    Fault::Moved(Impostor::start(move |name, _| {
        (name.eq_ignore_ascii_case(command)).then(|| reaction.clone())
    }))
}

fn closing_at(command: &'static str) -> Fault {
    let then = Then::Close;
    reacting(
        command,
        Reaction {
            then,
            ..Reaction::default()
        },
    )
}

/// Every connection of a client counts: for commands, renewals, acknowledgments and runtimes.
async fn count_dials(name: &'static str, fault: Fault) {
    let server = RedisServer::start();
    // This proxy also passes on data that is not RESP.
    let proxy = Proxy::start_sealed(server.addr());
    let manager = connect(&server.url_via(&proxy)).await;
    taken_once(&manager, "k").await;
    let calls = tokio::spawn(async move {
        loop {
            drop(manager.lock("k").try_acquire().await);
            let acknowledged = manager.lock("acknowledged").min_replicas(1);
            drop(acknowledged.try_acquire().await);
            tokio::time::sleep(ms(5)).await;
        }
    });
    let mut raw = server.client();
    let (before, began) = (proxy.stats().accepted, Instant::now());
    match &fault {
        Fault::Repeated(_) => {}
        Fault::Configured(words) => ok(&mut raw, words),
        Fault::Moved(impostor) => proxy.move_to(impostor.addr()),
        Fault::Killed => server.kill(),
    }
    proxy.reset_connections();
    while began.elapsed() < WINDOW {
        if let Fault::Repeated(act) = fault {
            act(&proxy, &mut raw);
        }
        tokio::time::sleep(ms(3)).await;
    }
    let (opened, elapsed) = (proxy.stats().accepted - before, began.elapsed());
    calls.abort();
    println!("{name}: {opened} connections in {elapsed:?}");
    assert!(opened > 0, "{name}: no connection was lost");
    let allowed = allowed(elapsed);
    assert!((opened as f64) < allowed, "{name}: {opened} of {allowed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_makes_a_client_dial_without_a_pause() {
    let kill_all = |_: &Proxy, raw: &mut Resp| {
        kill(raw, "pubsub");
        kill(raw, "normal");
    };
    let http = Reaction {
        bytes: b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        then: Then::Close,
    };
    let unknown = || Frame::error("ERR unknown command 'HELLO'");
    let rows = vec![
        (
            "reset",
            Fault::Repeated(|proxy, _| {
                proxy.reset_connections();
            }),
        ),
        ("closed after the handshake", Fault::Repeated(kill_all)),
        (
            "subscribers closed",
            Fault::Repeated(|_, raw| {
                kill(raw, "pubsub");
            }),
        ),
        (
            "others closed",
            Fault::Repeated(|_, raw| {
                kill(raw, "normal");
            }),
        ),
        (
            "another password",
            Fault::Configured(&["CONFIG", "SET", "requirepass", "x"]),
        ),
        (
            "no room",
            Fault::Configured(&["CONFIG", "SET", "maxclients", "1"]),
        ),
        (
            "SUBSCRIBE denied",
            Fault::Configured(&["ACL", "SETUSER", "default", "-subscribe"]),
        ),
        (
            "PING denied",
            Fault::Configured(&["ACL", "SETUSER", "default", "-ping"]),
        ),
        ("killed", Fault::Killed),
        ("another protocol", reacting("HELLO", http)),
        ("HELLO unknown", reacting("HELLO", unknown())),
        ("HELLO closes", closing_at("HELLO")),
        ("CLIENT closes", closing_at("CLIENT")),
        ("EVAL closes", closing_at("EVAL")),
        ("EVALSHA closes", closing_at("EVALSHA")),
        ("INFO closes", closing_at("INFO")),
        ("SUBSCRIBE closes", closing_at("SUBSCRIBE")),
        ("PING closes", closing_at("PING")),
        (
            "EVAL rejected",
            reacting("EVAL", Frame::error("ERR not today")),
        ),
    ];
    let counted = rows
        .into_iter()
        .map(|(name, fault)| tokio::spawn(count_dials(name, fault)));
    for counted in join_all(counted).await {
        counted.unwrap();
    }
}

/// Sentinels have a connection of their own each, and are asked at every attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_does_a_sentinel() {
    let server = RedisServer::start();
    let port = server.port().to_string();
    let primary = Frame::array([Frame::text("127.0.0.1"), Frame::text(&port)]);
    for (name, command, bytes) in [
        ("closed after the first reply", "SENTINEL", primary.encode()),
        ("closed at HELLO", "HELLO", Vec::new()),
        ("closed at SUBSCRIBE", "SUBSCRIBE", Vec::new()),
    ] {
        let Fault::Moved(sentinel) = reacting(
            command,
            Reaction {
                bytes,
                then: Then::Close,
            },
        ) else {
            unreachable!("{name}");
        };
        let proxy = Proxy::start_sealed(sentinel.addr());
        let url = proxy.url().replace("redis://", "redis+sentinel://") + "/service";
        let began = Instant::now();
        let manager = LockManager::connect_lazy(&url).unwrap();
        tokio::time::sleep(WINDOW).await;
        let (opened, elapsed) = (proxy.stats().accepted, began.elapsed());
        println!("{name}: {opened} connections in {elapsed:?}");
        assert!((opened as f64) < allowed(elapsed), "{name}: {opened}");
        manager.shutdown().await;
    }
}
