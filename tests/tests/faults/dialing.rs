//! How many connections a client opens while something is wrong with the server.

use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_tests::garbage::{Frame, Impostor, Reaction, Then};
use distlock_tests::{Proxy, RedisServer};
use futures::future::join_all;

use crate::support::{connect, kill, ms, ok, taken_once};

const WINDOW: Duration = ms(4_000);

/// Returns the documented limit of connections to one server, with some that had begun before.
fn allowed(elapsed: Duration) -> f64 {
    16.0 + 5.0 * elapsed.as_secs_f64()
}

/// What goes wrong. Except for the first, all connections are lost then.
enum Fault {
    /// The connections of these types are closed every few milliseconds; without a type, all are
    /// reset.
    Closed(&'static [&'static str]),
    Configured(&'static str),
    /// The address leads to this server from now on.
    Moved(Impostor),
    Killed,
}

/// Replaces the server by one that reacts differently to a command.
fn reacting(command: &'static str, reaction: impl Into<Reaction>) -> Impostor {
    let reaction = reaction.into();
    Impostor::start(move |name, _| (name.eq_ignore_ascii_case(command)).then(|| reaction.clone()))
}

/// Sends these bytes, and closes the connection.
fn closing(bytes: impl Into<Vec<u8>>) -> Reaction {
    let (bytes, then) = (bytes.into(), Then::Close);
    Reaction { bytes, then }
}

/// Every connection of a client counts: for commands, renewals, acknowledgments and runtimes.
async fn count_dials(name: &str, fault: Fault) {
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
        Fault::Closed(_) => {}
        Fault::Configured(line) => ok(&mut raw, &line.split(' ').collect::<Vec<_>>()),
        Fault::Moved(impostor) => proxy.move_to(impostor.addr()),
        Fault::Killed => server.kill(),
    }
    proxy.reset_connections();
    while began.elapsed() < WINDOW {
        if let Fault::Closed(types) = fault {
            for name in types {
                kill(&mut raw, name);
            }
            if types.is_empty() {
                proxy.reset_connections();
            }
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
    let types: [&[_]; 4] = [&[], &["pubsub", "normal"], &["pubsub"], &["normal"]];
    let lines = [
        "CONFIG SET requirepass x",
        "CONFIG SET maxclients 1",
        "ACL SETUSER default -subscribe",
        "ACL SETUSER default -ping",
    ];
    let commands = "HELLO EVAL EVALSHA INFO SUBSCRIBE PING";
    let unknown = Frame::error("ERR unknown command 'HELLO'");
    let mut faults = vec![
        ("killed".to_owned(), Fault::Killed),
        (
            "HELLO unknown".into(),
            Fault::Moved(reacting("HELLO", unknown)),
        ),
    ];
    faults.extend(types.map(|it| (format!("{it:?} closed"), Fault::Closed(it))));
    faults.extend(lines.map(|line| (line.to_owned(), Fault::Configured(line))));
    let http = closing("HTTP/1.1 400 Bad Request\r\n\r\n");
    let rejected = Reaction::from(Frame::error("ERR not today"));
    let closes = commands.split(' ').map(|command| (command, closing("")));
    for (command, reaction) in closes.chain([("HELLO", http), ("EVAL", rejected)]) {
        let name = format!("{command}: {:?}", String::from_utf8_lossy(&reaction.bytes));
        faults.push((name, Fault::Moved(reacting(command, reaction))));
    }
    let counting = |(name, fault): (String, Fault)| {
        tokio::spawn(async move { count_dials(&name, fault).await })
    };
    for counted in join_all(faults.into_iter().map(counting)).await {
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
        let sentinel = reacting(command, closing(bytes));
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
