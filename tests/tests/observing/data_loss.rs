//! Log lines about a store that lost its data, or may lose it.

use std::time::Duration;

use distlock::{Error, Lock, LockManager};
use distlock_tests::{Proxy, RedisServer, Resp, eventually, eventually_async, within};
use tracing::Level;

use crate::capture::{Line, captured};
use crate::support::{LONG, ms};

const LOST: &str = "lock store lost its data";
const GONE: &str = "success record gone before its time";
const NOT_KEPT: &str = "server has no append-only file";

fn is_of(line: &Line, address: &str) -> bool {
    let store = line.fields.get("store");
    store.is_some_and(|store| store.contains(address))
}

/// Runs the job, and returns whether it ran.
async fn runs(job: &Lock) -> bool {
    match job.run(async |_| Ok::<_, Error>(())).await {
        Ok(()) => true,
        Err(Error::AlreadyRan { .. }) => false,
        Err(error) => panic!("{error:?}"),
    }
}

const KEPT: &str = "restarted with its data";

/// What happens to a server, or with the one that replaces it.
type Happens = fn(&[RedisServer; 2], &Proxy, &mut Resp);

/// What happens between two runs of a job, while another lock is held: whether the hold ends, the
/// store counts as empty, and the job runs again.
const CASES: [(&str, Happens, [bool; 3]); 7] = [
    ("restarted without its data", restart, [true; 3]),
    ("flushed", |_, _, raw| ok(raw, "FLUSHALL"), [true; 3]),
    (KEPT, restart, [false; 3]),
    ("disconnected", |_, proxy, _| reset(proxy), [false; 3]),
    ("failed over", fail_over, [false; 3]),
    (
        "without the lock alone",
        |_, _, raw| ok(raw, "DEL distlock:lock:{held}"),
        [true, false, false],
    ),
    (
        "without the record alone",
        |_, _, raw| ok(raw, "DEL distlock:done::{job}"),
        [false, false, true],
    ),
];

fn ok(raw: &mut Resp, line: &str) {
    let words: Vec<_> = line.split(' ').collect();
    assert!(!raw.cmd(&words).is_error(), "{line}");
}

fn restart([server, _]: &[RedisServer; 2], _: &Proxy, _: &mut Resp) {
    server.kill();
    server.restart();
}

fn reset(proxy: &Proxy) {
    assert!(proxy.reset_connections() > 0);
}

/// A promoted replica has another run id, and the data.
fn fail_over([primary, replica]: &[RedisServer; 2], proxy: &Proxy, _: &mut Resp) {
    let mut raw = replica.client();
    ok(&mut raw, &format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    eventually(LONG, || raw.exists("distlock:done::{job}"));
    ok(&mut raw, "REPLICAOF NO ONE");
    proxy.move_to(replica.addr());
    reset(proxy);
}

async fn run(name: &str, happens: Happens, [ends, is_lost, is_gone]: [bool; 3]) {
    let builder = RedisServer::builder();
    let is_kept = name == KEPT;
    let server = if is_kept {
        builder.append_only()
    } else {
        builder
    };
    let servers = [server.start(), RedisServer::start()];
    let server = &servers[0];
    let (proxy, mut raw) = (server.proxy(), server.client());
    let manager = LockManager::connect(&proxy.url()).await.unwrap();
    let job = manager.lock("job").once_per(Duration::from_secs(3_600));
    assert!(runs(&job).await && !runs(&job).await, "{name}");
    let held = manager.lock("held").lease(ms(3_000));
    let guard = held.acquire().await.unwrap();
    happens(&servers, &proxy, &mut raw);
    if ends {
        within(LONG, guard.lost()).await;
    }
    // Later than the connection, and what follows it.
    drop(manager.lock("after").wait(LONG).acquire().await.unwrap());
    assert_eq!(runs(&job).await, is_gone, "{name}");
    let address = format!("127.0.0.1:{}", proxy.port());
    let found = || {
        let mut lines = captured().lines();
        lines.retain(|it| it.level == Level::WARN && is_of(it, &address));
        [LOST, GONE, NOT_KEPT].map(|text| lines.iter().filter(|it| it.contains(text)).count())
    };
    let wanted = [is_lost, is_gone, !is_kept].map(usize::from);
    eventually_async(LONG, async || found() == wanted).await;
    // No other line follows.
    tokio::time::sleep(ms(500)).await;
    assert_eq!(found(), wanted, "{name}");
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_loss_of_data_is_logged_once_and_nothing_else_is() {
    captured();
    for (name, happens, expected) in CASES {
        run(name, happens, expected).await;
        println!("{name}: as expected");
    }
}
