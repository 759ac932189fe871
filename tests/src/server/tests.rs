//! Servers that are started, frozen, killed and told the time.

use super::*;
use crate::{is_child, this_test_binary};

fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn dropping_a_server_leaves_neither_process_nor_directory() {
    let server = RedisServer::start();
    let (pid, dir) = (server.pid(), server.dir().to_owned());
    assert!(exists(pid) && dir.exists());
    server.stop_process();
    drop(server);
    assert!(!exists(pid) && !dir.exists());
}

/// Fails if it is started by the test below.
#[test]
fn entry() {
    if is_child() {
        let _server = RedisServer::start();
        panic!("on purpose");
    }
}

#[test]
fn a_test_that_fails_prints_where_the_log_of_its_server_is() {
    let output = this_test_binary("server::tests::entry", &[]).output();
    let output = output.expect("the binary can be run");
    assert!(!output.status.success());
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let log = printed
        .lines()
        .find_map(|line| line.strip_prefix("server log: "));
    let log = Path::new(log.unwrap_or_else(|| panic!("no path in {printed}")));
    let text = fs::read_to_string(log).expect("the log was kept");
    assert!(text.contains("Ready to accept connections"), "{text}");
    fs::remove_dir_all(log.parent().expect("its directory")).expect("nobody uses it");
}

#[test]
fn nothing_is_kept_over_a_restart_unless_asked_for() {
    for append_only in [false, true] {
        let builder = RedisServer::builder();
        let server = if append_only {
            builder.append_only()
        } else {
            builder
        }
        .start();
        let (port, pid) = (server.port(), server.pid());
        server.client().cmd(&["SET", "a", "1"]);
        server.kill();
        assert!(server.try_client().is_err(), "it is dead");
        server.restart();
        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), pid);
        assert_eq!(server.client().exists("a"), append_only);
    }
}

#[test]
fn the_clock_can_be_stepped_both_ways() {
    let server = RedisServer::builder().own_clock().start();
    let mut client = server.client();
    let mut ahead = || {
        let time = client.cmd(&["TIME"]);
        let seconds: i64 = time.array()[0].text().unwrap().parse().unwrap();
        let now = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap()
            .as_secs() as i64;
        seconds - now
    };
    let hour = Duration::from_secs(3600);
    assert!((-5..=5).contains(&ahead()));
    server.set_clock(true, hour);
    assert!((3595..=3605).contains(&ahead()));
    server.set_clock(false, hour);
    assert!((-3605..=-3595).contains(&ahead()));
    server.set_clock(true, Duration::ZERO);
    assert!((-5..=5).contains(&ahead()));
}
