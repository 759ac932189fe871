//! Calls that are given up while nobody knows what became of them.

use std::time::{Duration, Instant};

use distlock_tests::{RedisServer, eventually_async, within};

use crate::kit::{LONG, connect, leftovers, lock_key, ms, until_clean, warm};
use crate::rows::Dice;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_dropped_while_the_server_sleeps_leaves_nothing() {
    let server = RedisServer::start();
    warm(&server).await;
    let manager = connect(&server.url()).await;
    let mut raw = server.client();
    let mut monitor = server.monitor();
    // An orphan would stay for much longer than this test waits.
    let lease = ms(60_000);
    server.stop_process();
    let lock = manager.lock("k").lease(lease).wait(LONG);
    let dropped = tokio::time::timeout(ms(300), lock.acquire()).await;
    assert!(dropped.is_err(), "{dropped:?}");
    server.cont_process();
    // It was applied all the same.
    let taken = format!("\"SET\" \"{}\"", lock_key("k"));
    eventually_async(LONG, async || monitor.count(&taken) == 1).await;
    until_clean(&mut raw, LONG).await;
    lock.acquire().await.unwrap().release().await.unwrap();
}

/// Acquired, waited for, given up, renewed and released ten thousand times, in any order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_rounds_leave_no_key() {
    const TASKS: u64 = 20;
    const ROUNDS: u64 = 500;
    let server = RedisServer::start();
    let mut raw = server.client();
    let managers = [connect(&server.url()).await, connect(&server.url()).await];
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let manager = managers[task as usize % 2].clone();
            let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (task + 1));
            tokio::spawn(async move {
                let mut came = 0u64;
                for _ in 0..ROUNDS {
                    // A short one is renewed while it is released; an orphan of a long one would stay.
                    let lease = [ms(50), ms(30_000)][dice.below(2) as usize];
                    let key = format!("k{}", dice.below(8));
                    let lock = manager.lock(key).lease(lease).wait(LONG);
                    // Mostly too short to be sure of anything.
                    let longest = [4_000, 4_000, 4_000, 60_000][dice.below(4) as usize];
                    let patience = Duration::from_micros(dice.below(longest));
                    let Ok(Ok(guard)) = tokio::time::timeout(patience, lock.acquire()).await else {
                        continue;
                    };
                    came += 1;
                    if dice.below(10) == 0 {
                        tokio::time::sleep(ms(dice.below(20))).await;
                    }
                    match dice.below(3) {
                        0 => drop(guard),
                        1 => {
                            let _ = tokio::time::timeout(ms(0), guard.release()).await;
                        }
                        _ => {
                            let _ = guard.release().await;
                        }
                    }
                }
                came
            })
        })
        .collect();
    let mut came = 0;
    for task in tasks {
        came += within(LONG * 3, task).await.unwrap();
    }
    let rounds = TASKS * ROUNDS;
    assert!(came > 0, "none of {rounds} got the lock");
    assert!(came < rounds, "none was given up");
    let ended = Instant::now();
    until_clean(&mut raw, LONG).await;
    // And it stays so: no renewal of what is gone brings it back.
    while ended.elapsed() < ms(1_500) {
        assert_eq!(leftovers(&mut raw), Vec::<String>::new());
        tokio::time::sleep(ms(50)).await;
    }
}
