//! Many who wait for one lock: each hand-off wakes one of them.

use std::time::{Duration, Instant};

use distlock_tests::{RedisServer, eventually_async, within};

use crate::kit::{Exclusion, LONG, connect, ms, until_clean, until_queued, warm};

const CLIENTS: usize = 4;

/// What a queue cost.
#[derive(Debug)]
struct Cost {
    turns: u64,
    commands: u64,
    messages: u64,
    took: Duration,
}

/// Lets so many wait, and counts what the server is asked until all have had their turn.
async fn hand_through(waiters: usize) -> Cost {
    let server = RedisServer::start();
    warm(&server).await;
    let mut raw = server.client();
    let exclusion = Exclusion::new();
    let holder = connect(&server.url()).await;
    let mut managers = Vec::new();
    for _ in 0..CLIENTS {
        managers.push(connect(&server.url()).await);
    }
    let lease = ms(20_000);
    let guard = holder.lock("k").lease(lease).acquire().await.unwrap();
    let mut tasks = Vec::new();
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    for number in 0..waiters {
        let lock = managers[number % CLIENTS]
            .lock("k")
            .lease(lease)
            .wait(LONG * 3);
        let (exclusion, order) = (exclusion.clone(), order.clone());
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let inside = exclusion.enter(guard.fencing_token());
            order.lock().unwrap().push(number);
            drop(inside);
            guard.release().await.unwrap();
        }));
        // One after another, so that the order is known.
        if number % CLIENTS == CLIENTS - 1 {
            until_queued(&mut raw, "k", number as i64 + 1).await;
        }
    }
    until_queued(&mut raw, "k", waiters as i64).await;
    let monitor = server.monitor();
    let began = Instant::now();
    guard.release().await.unwrap();
    for task in tasks {
        within(LONG * 3, task).await.unwrap();
    }
    let took = began.elapsed();
    let lines = monitor.stop();
    let count = |needle: &str| lines.iter().filter(|line| line.contains(needle)).count() as u64;
    // First come, first served, as far as the order of asking is known.
    let order = order.lock().unwrap().clone();
    let groups: Vec<usize> = order.iter().map(|number| number / CLIENTS).collect();
    assert!(groups.is_sorted(), "{order:?}");
    eventually_async(LONG, async || raw.cmd(&["DBSIZE"]).int() <= 1).await;
    until_clean(&mut raw, LONG).await;
    Cost {
        turns: exclusion.turns(),
        commands: count("\"EVALSHA\"") + count("\"EVAL\""),
        messages: count("lua] \"PUBLISH\""),
        took,
    }
}

/// Who waits for very many locks looks at all of them, in scripts that keep nobody else for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_at_a_thousand_locks_is_many_short_scripts() {
    const LOCKS: usize = 1_000;
    let server = RedisServer::start();
    warm(&server).await;
    let mut raw = server.client();
    let manager = connect(&server.url()).await;
    let mut waiting = Vec::new();
    for n in 0..LOCKS {
        let key = format!("k{n}");
        let value = format!("2 {}:1 1700 600000 1700 somebody", "a".repeat(32));
        raw.cmd(&["SET", &crate::kit::lock_key(&key), &value, "PX", "600000"]);
        let lock = manager.lock(&key).wait(LONG * 3);
        waiting.push(tokio::spawn(async move { lock.acquire().await.is_ok() }));
    }
    let queues = async || raw.keys("distlock:queue:*").len() == LOCKS;
    eventually_async(LONG, queues).await;
    let mut monitor = server.monitor();
    // The keys of each look: its first argument is the client, an owner of whom would have a `:`.
    let mut looks = Vec::new();
    eventually_async(LONG, async || {
        looks = (monitor.lines().iter())
            .filter_map(|line| {
                let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
                let count: usize = match words[..] {
                    ["EVALSHA", _, count, ..] => count.parse().unwrap(),
                    _ => return None,
                };
                let is_look = words.get(3 + count).is_some_and(|arg| !arg.contains(':'));
                is_look.then_some(count / 4)
            })
            .collect();
        looks.iter().sum::<usize>() >= LOCKS
    })
    .await;
    drop(monitor);
    assert!(looks.iter().all(|locks| *locks <= 50), "{looks:?}");
    for task in &waiting {
        assert!(!task.is_finished());
        task.abort();
    }
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_costs_the_same_however_many_wait() {
    for waiters in [8, 200] {
        let cost = hand_through(waiters).await;
        eprintln!("{waiters} waiters: {cost:?}");
        let turns = waiters as u64;
        assert_eq!(cost.turns, turns);
        // A message for each grant; a look may repeat one that was not heard of yet.
        assert!(
            cost.messages >= turns && cost.messages <= turns * 2,
            "{cost:?}"
        );
        // Its release, and on a slow machine its confirmation; and each client looks twice a second.
        let halves = u64::try_from(cost.took.as_millis() / 500).unwrap() + 2;
        let looks = CLIENTS as u64 * halves;
        assert!(
            cost.commands <= 3 * turns + looks,
            "{cost:?}: more than {looks} looks and three commands for each hand-off"
        );
    }
}
