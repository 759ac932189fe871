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
