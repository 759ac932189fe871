//! The program as its users see it, against real servers and with real processes.

#![allow(clippy::unwrap_used)]

mod chart;
mod documented;
mod running;
mod topologies;

use std::time::{Duration, Instant};

use distlock_tests::documents::typed;
use distlock_tests::{RedisServer, eventually};

use running::{Running, assert_nothing_was_lost, assert_tidy, inventory, output, row, signal};

/// Lease, grace, and a second.
const DELAY: Duration = Duration::from_millis(3_250);

#[test]
fn in_memory_the_lock_makes_the_difference() {
    let arguments = typed("examples/README.md", "cargo run");
    let mut command = inventory("memory:", &arguments.join(" "));
    let (code, text, errors) = Running::of(command.env_remove("DISTLOCK_URL")).end();
    assert_eq!(code, Some(0));
    assert_nothing_was_lost(&text, 3_000);
    assert!(row(&text, "lost updates")[0] > 0, "{text}");
    assert!(text.contains("Without the lock"), "{text}");
    assert!(
        errors.contains("with lock     [#####"),
        "no progress: {errors}"
    );
}

#[test]
fn a_killed_process_loses_nothing_and_delays_the_others_by_one_lease() {
    let server = RedisServer::start();
    let (code, text, errors) = output(&server.url(), "--processes 4 --kill-one");
    assert_eq!(code, Some(0));
    assert_nothing_was_lost(&text, 3_000);
    assert!(row(&text, "lost updates")[0] > 0, "{text}");

    assert!(errors.contains("signal: 9 (SIGKILL)"), "{errors}");
    let died = text
        .lines()
        .find(|line| line.starts_with("Process "))
        .unwrap();
    assert!(died.contains("the bound of 3.25 s"), "{died}");
    let (_, delay) = died.split_once("Longest delay for an item: ").unwrap();
    let mut delay = delay.split_whitespace();
    let number: f64 = delay.next().unwrap().parse().unwrap();
    let seconds = match delay.next().unwrap() {
        "s," => number,
        _ => number / 1_000.0,
    };
    // A busy machine may keep the others waiting, but not for a second lease.
    assert!(seconds <= DELAY.as_secs_f64() + 3.0, "{died}");
    assert_tidy(&server);
}

#[test]
fn a_process_killed_by_hand_is_noticed_and_its_orders_go_to_the_others() {
    let server = RedisServer::start();
    let mut run = Running::start(&server.url(), "--only locked --processes 3");
    let victim = run.workers()[1];
    run.until("orders, ");
    signal("KILL", &[victim]);
    let noticed = run.until("is gone");
    assert!(
        noticed.contains(&format!("process {victim} is gone (signal: 9")),
        "{noticed}"
    );
    let (code, text, errors) = run.end();
    assert_eq!(code, Some(0), "{errors}");
    assert_nothing_was_lost(&text, 3_000);
    assert_tidy(&server);
}

#[test]
fn a_frozen_process_that_comes_back_late_writes_nothing() {
    let server = RedisServer::start();
    let mut run = Running::start(&server.url(), "--only locked --processes 2 --orders 1200");
    let victim = run.workers()[0];
    run.until("orders, ");
    signal("STOP", &[victim]);
    // The other has done the rest, and no lease is left.
    run.until("1192/1200");
    let mut client = server.client();
    eventually(DELAY * 5, || {
        client.keys("inventory-demo:lock:*").is_empty()
    });
    signal("CONT", &[victim]);
    let (code, text, errors) = run.end();
    assert_eq!(code, Some(0), "{errors}");
    assert_nothing_was_lost(&text, 1_200);
    assert_tidy(&server);
}

#[test]
fn when_all_processes_die_it_says_so() {
    let server = RedisServer::start();
    let mut run = Running::start(&server.url(), "--only locked --processes 2");
    let workers = run.workers();
    run.until("orders, ");
    signal("KILL", &workers);
    let (code, _, errors) = run.end();
    assert_eq!(code, Some(2));
    assert!(errors.contains("no worker process is left"), "{errors}");
    assert_tidy(&server);
}

#[test]
fn an_interrupted_run_deletes_its_stock() {
    let server = RedisServer::start();
    let mut run = Running::start(&server.url(), "--only locked");
    run.until("orders, ");
    signal("INT", &[run.pid]);
    let (code, _, errors) = run.end();
    assert_eq!(code, Some(130));
    assert!(errors.contains("interrupted"), "{errors}");
    assert_tidy(&server);
}

#[test]
fn a_server_that_dies_in_the_middle_ends_the_run_with_a_message() {
    let server = RedisServer::start();
    let mut run = Running::start(&server.url(), "--only locked");
    run.until("orders, ");
    server.kill();
    let killed = Instant::now();
    let (code, _, errors) = run.end();
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("error: ") && !errors.contains("panicked"),
        "{errors}"
    );
    assert!(
        killed.elapsed() < Duration::from_secs(20),
        "{:?}",
        killed.elapsed()
    );
}

#[test]
fn a_server_that_is_down_is_explained_without_the_password() {
    let server = RedisServer::start();
    server.kill();
    let url = server.url().replace("redis://", "redis://:hunter2@");
    let (code, _, errors) = output(&url, "");
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("unreachable") && errors.contains("redis-server"),
        "{errors}"
    );
    assert!(
        !errors.contains("hunter2") && !errors.contains("panicked"),
        "{errors}"
    );
}

#[test]
fn a_wrong_password_is_explained_without_it() {
    let server = RedisServer::builder().requirepass("right").start();
    let url = server.url().replace("right", "hunter2");
    let (code, _, errors) = output(&url, "");
    assert_eq!(code, Some(2));
    assert!(errors.contains("password"), "{errors}");
    assert!(
        !errors.contains("hunter2") && !errors.contains("panicked"),
        "{errors}"
    );
    let (_, text, _) = output(&server.url(), "--only locked --orders 50 --processes 2");
    assert_nothing_was_lost(&text, 50);
}
