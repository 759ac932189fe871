//! Log lines about a store that lost its data, or may lose it.

use std::time::Duration;

use distlock::{Error, Lock, LockManager};
use distlock_tests::{Proxy, RedisServer, Resp, eventually_async, within};
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

/// What happens to a server between two runs of a job, while another lock is held.
struct Case {
    name: &'static str,
    is_kept: bool,
    happens: fn(&RedisServer, &Proxy, &mut Resp),
    /// The hold ends, the store counts as empty, and the job runs again.
    expected: [bool; 3],
}

const CASES: &[Case] = &[
    Case {
        name: "restarted without its data",
        is_kept: false,
        happens: |server, _, _| {
            server.kill();
            server.restart();
        },
        expected: [true, true, true],
    },
    Case {
        name: "flushed",
        is_kept: false,
        happens: |_, _, raw| drop(raw.cmd(&["FLUSHALL"])),
        expected: [true, true, true],
    },
    Case {
        name: "restarted with its data",
        is_kept: true,
        happens: |server, _, _| {
            server.kill();
            server.restart();
        },
        expected: [false, false, false],
    },
    Case {
        name: "disconnected",
        is_kept: false,
        happens: |_, proxy, _| assert!(proxy.reset_connections() > 0),
        expected: [false, false, false],
    },
    Case {
        name: "without the lock alone",
        is_kept: false,
        happens: |_, _, raw| drop(raw.cmd(&["DEL", "distlock:lock:{held}"])),
        expected: [true, false, false],
    },
    Case {
        name: "without the record alone",
        is_kept: false,
        happens: |_, _, raw| drop(raw.cmd(&["DEL", "distlock:done::{job}"])),
        expected: [false, false, true],
    },
];

async fn run(case: &Case) {
    let Case {
        name,
        expected: [ends, is_lost, is_gone],
        ..
    } = *case;
    let builder = RedisServer::builder();
    let server = if case.is_kept {
        builder.append_only()
    } else {
        builder
    }
    .start();
    let (proxy, mut raw) = (server.proxy(), server.client());
    let manager = LockManager::connect(&proxy.url()).await.unwrap();
    let job = manager.lock("job").once_per(Duration::from_secs(3_600));
    assert!(runs(&job).await && !runs(&job).await, "{name}");
    let held = manager.lock("held").lease(ms(3_000));
    let guard = held.acquire().await.unwrap();
    (case.happens)(&server, &proxy, &mut raw);
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
    let wanted = [is_lost, is_gone, !case.is_kept].map(usize::from);
    eventually_async(LONG, async || found() == wanted).await;
    // No other line follows.
    tokio::time::sleep(ms(500)).await;
    assert_eq!(found(), wanted, "{name}");
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_loss_of_data_is_logged_once_and_nothing_else_is() {
    captured();
    for case in CASES {
        run(case).await;
        println!("{}: as expected", case.name);
    }
}

/// A promoted replica has another run id, and the data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_lost_nothing_is_no_loss() {
    captured();
    let (primary, replica) = (RedisServer::start(), RedisServer::start());
    let mut raw = [primary.client(), replica.client()];
    raw[1].cmd(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let proxy = primary.proxy();
    let manager = LockManager::connect(&proxy.url()).await.unwrap();
    let job = manager.lock("job").once_per(Duration::from_secs(3_600));
    assert!(runs(&job).await);
    let copied = async || raw[1].cmd(&["EXISTS", "distlock:done::{job}"]).int() == 1;
    eventually_async(LONG, copied).await;
    let mut raw = replica.client();
    raw.cmd(&["REPLICAOF", "NO", "ONE"]);
    proxy.move_to(replica.addr());
    proxy.reset_connections();
    drop(manager.lock("after").wait(LONG).acquire().await.unwrap());
    assert!(!runs(&job).await);
    tokio::time::sleep(ms(500)).await;
    let address = format!("127.0.0.1:{}", proxy.port());
    let mut lines = captured().lines();
    lines.retain(|it| is_of(it, &address) && (it.contains(LOST) || it.contains(GONE)));
    assert!(lines.is_empty(), "{lines:?}");
    manager.shutdown().await;
}
