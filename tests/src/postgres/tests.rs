//! The fixture with real servers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use super::*;
use crate::process::{Worker, is_child, this_test_binary};

const SECONDS: Duration = Duration::from_secs(60);

fn states(server: Pid) -> Vec<String> {
    let pids = [vec![server], children(server)].concat();
    let states = pids.into_iter().filter_map(state_and_parent);
    states.map(|(state, _)| state).collect()
}

#[test]
fn a_server_keeps_its_data_over_crashes_and_restarts() {
    let server = PostgresServer::builder()
        .setting("distlock.text", r"it's a \ 'test'")
        .start();
    assert_eq!(server.url(), url("distlock", server.port()));
    assert_eq!(server.sql("show fsync; show synchronous_commit"), "off\non");
    assert_eq!(server.sql("show distlock.text"), r"it's a \ 'test'");
    server.sql("create database other");
    assert_eq!(server.sql("select version() like 'PostgreSQL%', 7"), "t|7");
    let path = server.dir().join("setup.sql");
    fs::write(&path, "create table t (n int); insert into t values (1)").unwrap();
    server.sql_file(&path);
    let error = server.try_sql("select 1 / 0").unwrap_err();
    assert!(error.contains("division by zero"), "{error}");

    server.sql("insert into t values (2)");
    server.restart();
    assert!(server.log().contains("was not properly shut down"));
    server.sql("insert into t values (3)");
    server.terminate();
    assert!(!server.is_running() && server.log().contains("database system is shut down"));
    assert!(server.try_sql("select 1").is_err());
    server.restart();
    assert!(!server.log().contains("was not properly shut down"));

    // A crash of the postmaster alone. A backend that computes notices it late.
    let busy = "select count(*) from generate_series(1, 10000000)";
    std::thread::scope(|scope| {
        let query = scope.spawn(|| server.try_sql(busy));
        eventually(SECONDS, || equal(server.backends().len(), 1));
        signal(
            &[Pid::from_child(server.running().postmaster())],
            Signal::KILL,
        );
        server.restart();
        let _ = query.join();
    });
    assert_eq!(server.sql("select sum(n) from t"), "6");
    assert_eq!(server.backends(), []);
}

#[test]
fn a_frozen_server_replies_to_nothing_before_it_resumes() {
    let server = PostgresServer::start();
    let proxy = server.proxy();
    // An open connection, through a proxy, has a backend of its own.
    let mut psql = plain(program("psql"));
    psql.args(["-XAtq", "-d", &server.url_via(&proxy)]);
    let mut open = Worker::spawn(psql.stderr(Stdio::null()));
    open.send("select 'one' || 1;");
    open.expect_line("one1", SECONDS);
    assert_eq!(server.backends().len(), 1);
    let postmaster = Pid::from_child(server.running().postmaster());

    server.stop_process();
    let frozen = states(postmaster);
    assert!(
        frozen.len() > 3 && frozen.iter().all(|state| state == "T"),
        "{frozen:?}"
    );
    open.send("select 'two' || 2;");
    // The kernel still accepts the connection. The message asks for TLS.
    let mut new = TcpStream::connect(server.addr()).unwrap();
    new.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).unwrap();
    new.set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    assert!(new.read(&mut [0]).is_err());
    assert_eq!(open.drain_lines(), [""; 0]);

    server.cont_process();
    open.expect_line("two2", SECONDS);
    new.set_read_timeout(Some(SECONDS)).unwrap();
    let mut reply = [0];
    new.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"N");

    // A frozen server ends at once, and does not execute what it received.
    server.sql("create table t (n int)");
    server.stop_process();
    open.send("insert into t values (1);");
    server.kill();
    assert_eq!(states(postmaster), [""; 0]);
    server.restart();
    assert_eq!(server.sql("select count(*) from t"), "0");
}

#[test]
fn a_silent_client_that_came_too_early_delays_no_shutdown() {
    let server = PostgresServer::builder()
        .setting("max_connections", "5")
        .start();
    let mut clients = Vec::new();
    // The first ones take all places before they have sent anything; the others are rejected.
    for _ in 0..100 {
        clients.push(TcpStream::connect(server.addr()).unwrap());
    }
    let postmaster = Pid::from_child(server.running().postmaster());
    eventually(SECONDS, || equal(children(postmaster).len() > 80, true));
    let began = Instant::now();
    server.kill();
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "it awaited the clients"
    );
}

#[test]
fn a_standby_follows_its_primary_and_is_promoted() {
    let primary = PostgresServer::start();
    let standby = primary.standby();
    let rows = "select n from t";
    primary.sql("create table t (n int); insert into t values (1)");
    eventually(SECONDS, || equal(standby.try_sql(rows).as_deref(), Ok("1")));
    assert!(standby.try_sql("delete from t").is_err());
    standby.restart();
    primary.sql("update t set n = 2");
    eventually(SECONDS, || equal(standby.sql(rows), "2"));
    primary.stop_process();
    standby.promote();
    standby.sql("update t set n = 3");
    primary.cont_process();
    assert_eq!(
        (standby.sql(rows), primary.sql(rows)),
        ("3".into(), "2".into())
    );
}

#[test]
fn a_server_has_its_own_clock_and_users() {
    let server = PostgresServer::builder()
        .own_clock()
        .require_passwords()
        .start();
    let ahead = || {
        let since = server.sql("select extract(epoch from clock_timestamp())::bigint");
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
        since.parse::<i64>().unwrap() - now
    };
    assert!(ahead().abs() < 100);
    server.set_clock(true, Duration::from_secs(3600));
    assert!((3500..3700).contains(&ahead()));
    server.set_clock(false, Duration::from_secs(3600));
    assert!((-3700..-3500).contains(&ahead()));

    server.sql("create role \"a@b\" login password 'p:/ä'");
    let user = |password| psql(&server.url_as("a@b", password), &[], "select current_user");
    assert_eq!(user("p:/ä").unwrap(), "a@b");
    let error = user("wrong").unwrap_err();
    assert!(error.contains("password authentication failed"), "{error}");
}

/// The child of the next test: a parent that aborts without cleanup.
#[test]
fn careless_parent_entry() {
    if is_child() {
        let server = PostgresServer::start();
        println!("pid {}", server.pid());
        println!("dir {}", server.dir().display());
        server.stop_process();
        std::process::abort();
    }
}

#[test]
fn a_server_does_not_outlive_its_parent() {
    let entry = "postgres::tests::careless_parent_entry";
    let mut parent = Worker::spawn(&mut this_test_binary(entry, &[]));
    let pid: i32 = parent.expect_line("pid ", SECONDS).parse().unwrap();
    let dir = parent.expect_line("dir ", SECONDS);
    let server = Pid::from_raw(pid).unwrap();
    let children = children(server);
    parent.wait(SECONDS);
    eventually(SECONDS, || {
        let mut left = [vec![server], children.clone()].concat();
        // An orphan can remain a zombie on a system without a process that reaps orphans.
        left.retain(|pid| state_and_parent(*pid).is_some_and(|(state, _)| state != "Z"));
        equal((left, Path::new(&dir).exists()), (vec![], false))
    });
}
