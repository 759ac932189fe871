//! Many waiters of one lock: each hand-off wakes one of them.

use std::time::Instant;

use distlock_tests::{RedisServer, eventually_async, within};

use crate::support::{
    LONG, acquire_later, connect, give_back, lock_key, ms, until_clean, until_queued, warm,
};

const CLIENTS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_costs_the_same_however_many_wait() {
    for waiters in [8, 200] {
        hand_through(waiters).await;
    }
}

/// Queues `waiters` calls, and counts the server's commands until all have had their turn.
async fn hand_through(waiters: usize) {
    let server = RedisServer::start();
    warm(&server).await;
    let mut raw = server.client();
    let mut managers = Vec::new();
    for _ in 0..CLIENTS {
        managers.push(connect(&server.url()).await);
    }
    let lease = ms(20_000);
    let holder = connect(&server.url()).await;
    let guard = holder.lock("k").lease(lease).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for number in 0..waiters {
        let later = acquire_later(&managers[number % CLIENTS], "k", lease, LONG * 3);
        waiting.push(tokio::spawn(give_back(later)));
        // One group after the other, so that the order of the groups is known.
        if number % CLIENTS == CLIENTS - 1 {
            until_queued(&mut raw, "k", number as i64 + 1).await;
        }
    }
    let mut monitor = server.monitor();
    let began = Instant::now();
    let mut last = guard.fencing_token();
    guard.release().await.unwrap();
    for group in waiting.chunks_mut(CLIENTS) {
        let before = last;
        for turn in group {
            let (token, _) = within(LONG * 3, turn).await.unwrap();
            assert!(token > before, "{token} was served before {before}");
            last = last.max(token);
        }
    }
    let took = began.elapsed();
    let lines = monitor.lines();
    let count = |needle: &str| lines.iter().filter(|line| line.contains(needle)).count();
    until_clean(&mut raw, LONG).await;
    // One push for each grant; a queue check may repeat a push that has not arrived yet.
    let messages = count("lua] \"PUBLISH\"");
    assert!(
        (waiters..=waiters * 2).contains(&messages),
        "{messages} messages to {waiters} waiters"
    );
    // Each release, on a slow machine each confirmation, and two queue checks per second and
    // client.
    let commands = count("\"EVALSHA\"") + count("\"EVAL\"");
    let checks = CLIENTS * (took.as_millis() as usize / 500 + 2);
    assert!(
        commands <= 3 * waiters + checks,
        "{commands} commands in {took:?} for {waiters} waiters and {checks} checks"
    );
}

/// A client that waits for thousands of locks checks all of them, in scripts that do not delay
/// other clients for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_check_of_a_thousand_locks_is_many_short_scripts() {
    const LOCKS: usize = 1_000;
    let server = RedisServer::start();
    warm(&server).await;
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let mut waiting = Vec::new();
    for n in 0..LOCKS {
        let key = format!("k{n}");
        let value = format!("2 {}:1 1700 600000 1700 another", "a".repeat(32));
        raw.cmd(&["SET", &lock_key(&key), &value, "PX", "600000"]);
        let lock = manager.lock(&key).wait(LONG * 3);
        waiting.push(tokio::spawn(async move { lock.acquire().await.is_ok() }));
    }
    let queues = async || raw.keys("distlock:queue:*").len() == LOCKS;
    eventually_async(LONG, queues).await;
    let mut monitor = server.monitor();
    // Counts the locks of each queue check. Its first argument is a client; an owner has a `:`.
    let mut checks = Vec::new();
    eventually_async(LONG, async || {
        checks = (monitor.lines().iter())
            .filter_map(|line| {
                let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
                let count: usize = match words[..] {
                    ["EVALSHA", _, count, ..] => count.parse().unwrap(),
                    _ => return None,
                };
                let is_check = words.get(3 + count).is_some_and(|arg| !arg.contains(':'));
                is_check.then_some(count / 4)
            })
            .collect();
        checks.iter().sum::<usize>() >= LOCKS
    })
    .await;
    drop(monitor);
    assert!(checks.iter().all(|locks| *locks <= 50), "{checks:?}");
    for task in &waiting {
        assert!(!task.is_finished());
        task.abort();
    }
    manager.shutdown().await;
}
