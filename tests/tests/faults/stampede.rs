//! Thousands of concurrent callers before, during and after an outage. A client never makes a
//! healthy server unusable, for itself or for others.

use std::time::{Duration, Instant};

use distlock::{Error, LockManager};
use distlock_tests::{RedisServer, eventually_async, within};
use futures::StreamExt as _;

use crate::support::{
    LONG, accepted, acquire_later, calls, connect, connections, failed, give_back, hold, ms,
    scripts, single, until_clean, until_queued, until_served,
};

/// Upper limit of the connections that a manager used from one runtime opens. It needs two, one of
/// them for renewals, and opens each again if the server was not ready at first.
const MOST_CONNECTIONS: u64 = 4;

/// Returns the number in the manager's `Debug` output after `field`.
fn shown(manager: &LockManager, field: &str) -> u64 {
    let shown = format!("{manager:?}");
    let (_, behind) = shown.split_once(&format!("{field}: ")).expect(&shown);
    let end = behind.find(|c: char| !c.is_ascii_digit()).expect(&shown);
    behind[..end].parse().expect(&shown)
}

/// Tries `calls` locks from several tasks at once. Returns how many attempts succeeded.
async fn try_often(manager: &LockManager, key: &'static str, calls: u64) -> u64 {
    let tries = futures::stream::iter(0..calls).map(|n| {
        let lock = manager.lock(format!("{key}{n}"));
        tokio::spawn(async move {
            let Ok(Some(guard)) = lock.try_acquire().await else {
                return 0;
            };
            guard.release().await.unwrap();
            1
        })
    });
    let won = tries.buffer_unordered(64);
    won.fold(0, async |won, one| won + one.unwrap()).await
}

/// Runs a body under `calls` locks at once, each in its own task.
async fn run_at_once(manager: &LockManager, calls: u64) {
    let calls: Vec<_> = (0..calls)
        .map(|n| {
            let lock = manager.lock(format!("k{n}")).wait(LONG * 6);
            tokio::spawn(async move { lock.run(async |_| Ok::<_, Error>(())).await })
        })
        .collect();
    for call in calls {
        within(LONG * 6, call).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_failed_in_an_outage_cost_nothing_after_it() {
    const CALLS: u64 = 20_000;
    let server = RedisServer::builder().append_only().start();
    let manager = connect(&server.url()).await;
    let bystander = connect(&server.url()).await;
    let held = bystander.lock("bystander").acquire().await.unwrap();
    assert_eq!(try_often(&manager, "before", 200).await, 200);
    server.kill();
    let down = async || manager.lock("k").try_acquire().await.is_err();
    eventually_async(LONG, down).await;
    assert_eq!(try_often(&manager, "during", CALLS).await, 0);
    server.restart();
    let back = Instant::now();
    until_served(&manager).await;
    assert_eq!(try_often(&manager, "after", 200).await, 200);
    assert!(held.is_held(), "the bystander lost its lock");
    // A command that was never sent is not cancelled, and no script was sent twice as unknown.
    let mut raw = server.client();
    let scripts_run = scripts(&mut raw);
    assert!(
        scripts_run < 2_000,
        "{scripts_run} scripts for some hundred calls, {:?} after the return",
        back.elapsed()
    );
    // Does not count the test's own two connections; the others are of two clients.
    let opened = accepted(&mut raw) - 2;
    assert!(opened <= 2 * MOST_CONNECTIONS, "{opened} connections");
    assert_eq!(shown(&manager, "waiting"), 0);
    eventually_async(LONG, async || shown(&manager, "releasing") == 0).await;
    held.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswered_commands_of_a_frozen_server_are_cancelled_in_order() {
    let (server, mut raw, manager) = single().await;
    // The server knows the scripts, so that each call is one command.
    assert_eq!(try_often(&manager, "before", 200).await, 200);
    server.stop_process();
    let requested_at = Instant::now();
    // The commands are sent, and their effect is unknown.
    assert_eq!(try_often(&manager, "during", 1_000).await, 0);
    assert!(
        requested_at.elapsed() < LONG,
        "{:?}",
        requested_at.elapsed()
    );
    server.cont_process();
    until_served(&manager).await;
    eventually_async(LONG, async || shown(&manager, "releasing") == 0).await;
    // Long before a lease would end.
    until_clean(&mut raw, ms(10_000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_outlast_a_restart() {
    const WAITERS: i64 = 10_000;
    let (server, mut raw, manager) = single().await;
    let holder = connect(&server.url()).await;
    let held = holder.lock("k").acquire().await.unwrap();
    let wait = Duration::from_secs(400);
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| acquire_later(&manager, "k", ms(30_000), wait))
        .map(|waiter| tokio::spawn(give_back(waiter)))
        .collect();
    eventually_async(wait, async || {
        raw.cmd(&["ZCARD", "distlock:queue:{k}"]).int() == WAITERS
    })
    .await;
    server.kill();
    server.restart();
    let back = Instant::now();
    let mut first = Duration::MAX;
    for waiter in waiters {
        let (_, acquired) = within(wait, waiter).await.unwrap();
        first = first.min(acquired.saturating_duration_since(back));
    }
    assert!(first < LONG * 3, "the first grant came after {first:?}");
    let mut raw = server.client();
    let opened = accepted(&mut raw) - 2;
    assert!(opened <= 2 * MOST_CONNECTIONS, "{opened} connections");
    assert!(held.release().await.is_err(), "the server forgot it");
    assert_eq!(shown(&manager, "waiting"), 0);
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_thousand_callers_at_once_need_no_more_connections() {
    const CALLERS: u64 = 20_000;
    let (_server, mut raw, manager) = single().await;
    // Opens the runtime connection first.
    let at_first = connections(&mut raw);
    eventually_async(LONG, async || {
        try_often(&manager, "before", 100).await;
        connections(&mut raw) > at_first
    })
    .await;
    let before = connections(&mut raw);
    let opened_before = accepted(&mut raw);
    run_at_once(&manager, CALLERS).await;
    // A connection that was silent for long may have been replaced.
    let more = accepted(&mut raw) - opened_before;
    assert!(more <= MOST_CONNECTIONS, "it dialed {more} times");
    eventually_async(LONG, async || connections(&mut raw) <= before).await;
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_scripts_are_sent_as_source_once_by_each_command() {
    let (_server, mut raw, manager) = single().await;
    assert_eq!(try_often(&manager, "before", 100).await, 100);
    raw.cmd(&["SCRIPT", "FLUSH"]);
    raw.cmd(&["CONFIG", "RESETSTAT"]);
    run_at_once(&manager, 500).await;
    let (by_source, unknown) = (calls(&mut raw, "eval"), failed(&mut raw, "evalsha"));
    assert!(by_source > 0);
    assert_eq!(by_source, unknown);
    until_queued(&mut raw, "k", 0).await;
}

/// Releases that the store rejects every time do not delay other releases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_that_are_refused_delay_no_others() {
    const BAD: u64 = 600;
    const GOOD: u64 = 2_000;
    let (_server, mut raw, manager) = single().await;
    let lease = Duration::from_secs(60);
    for n in 0..BAD {
        raw.cmd(&["SET", &format!("distlock:queue:{{bad{n}}}"), "foreign"]);
    }
    let mut held = Vec::new();
    for n in 0..GOOD {
        held.push(hold(&manager, &format!("good{n}"), lease).await);
    }
    for n in 0..BAD {
        let lock = manager.lock(format!("bad{n}")).lease(lease);
        let error = lock.acquire().await.unwrap_err();
        assert!(matches!(error, Error::KeyConflict { .. }), "{error:?}");
    }
    drop(held);
    eventually_async(LONG, async || raw.keys("distlock:lock:*").is_empty()).await;
    // The other releases are still retried, and rejected. The last replies may still be on their
    // way.
    eventually_async(LONG, async || shown(&manager, "releasing") == BAD).await;
}
