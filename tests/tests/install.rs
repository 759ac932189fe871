//! The process-wide default manager, with each scenario in its own process.

// A test states its expectations by unwrapping them.
#![allow(clippy::unwrap_used)]

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use distlock::observer::{self, Event};
use distlock::{Error, LockManager, RunOutcome, distributed_lock, install, installed};
use distlock_tests::{RedisServer, Worker, child_args, is_child, this_test_binary};

const PATIENCE: Duration = Duration::from_secs(30);

#[distributed_lock(key = "k", wait = "0s")]
async fn locked() -> Result<u64, Error> {
    Ok(distlock::current().fencing_token().get())
}

#[distributed_lock(key = "k", run_if = false, on_busy = "skip")]
async fn skipped() -> Result<(), Error> {
    panic!("it is false")
}

/// Runs a scenario below in a new process, and returns what it prints after `done` at its end.
fn scenario(name: &str, environment: &[(String, String)]) -> String {
    let mut command: Command = this_test_binary("scenarios", &[name]);
    for name in ["URL", "NAMESPACE", "USERNAME", "PASSWORD"] {
        command.env_remove(format!("DISTLOCK_{name}"));
    }
    command.envs(environment.iter().cloned());
    let mut child = Worker::spawn(&mut command);
    let result = child.expect_line("done", PATIENCE);
    assert!(child.wait(PATIENCE).success());
    result
}

/// Runs one scenario, in a child process.
#[test]
fn scenarios() {
    if !is_child() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match child_args()[0].as_str() {
        "install" => runtime.block_on(installing()),
        "shutdown" => runtime.block_on(shutting_down()),
        "threads" => runtime.block_on(threads()),
        "set" => runtime.block_on(from_env_set()),
        "defaults" => runtime.block_on(defaults()),
        "refused" => return println!("done {}", runtime.block_on(from_env_refused())),

        "two servers" => runtime.block_on(two_servers()),
        other => panic!("no scenario {other}"),
    }
    println!("done");
}

#[test]
fn the_first_manager_is_installed_and_stays() {
    scenario("install", &[]);
}

async fn installing() {
    assert!(installed().is_none());
    let error = locked().await.unwrap_err();
    assert!(matches!(error, Error::NotInstalled), "{error:?}");
    let message = error.to_string();
    for remedy in [
        "distlock::install(",
        "with_manager",
        "manager =",
        "even in `main` and in tests",
    ] {
        assert!(message.contains(remedy), "no {remedy} in {message}");
    }
    // There is nothing to shut down.
    distlock::shutdown().await;

    let (sender, events) = mpsc::channel();
    let observer = observer::from_fn(move |event| drop(sender.send(event.clone())));
    let builder = LockManager::builder().add_observer(observer);
    let first = builder.in_memory().unwrap();
    install(first.clone()).unwrap();
    skipped().await.unwrap();
    let event = events.recv_timeout(PATIENCE);
    assert!(matches!(event, Ok(Event::Skipped { .. })), "{event:?}");
    assert!(installed().is_some());
    let token = locked().await.unwrap();
    let seen = first.inspect("k").await.unwrap().last_fencing_token;
    assert_eq!(seen.map(u64::from), Some(token), "it used another store");

    let second = LockManager::in_memory();
    let error = install(second.clone()).unwrap_err();
    assert!(matches!(error, Error::AlreadyInstalled), "{error:?}");
    assert!(error.to_string().contains("cannot be replaced"), "{error}");
    let guard = first.lock("k").acquire().await.unwrap();
    let error = locked().await.unwrap_err();
    assert!(error.is_busy(), "the second one took its place");
    // `with_manager` takes precedence. Spawned tasks use the default.
    distlock::with_manager(second, locked()).await.unwrap();
    guard.release().await.unwrap();
    tokio::spawn(locked()).await.unwrap().unwrap();
}

#[test]
fn shutting_the_default_down() {
    scenario("shutdown", &[]);
}

async fn shutting_down() {
    let server = RedisServer::start();
    install(LockManager::connect(&server.url()).await.unwrap()).unwrap();
    let manager = installed().unwrap();
    let guard = manager.lock("held").acquire().await.unwrap();
    assert!(server.client().exists("distlock:lock:{held}"));
    distlock::shutdown().await;
    let left = server.client().keys("distlock:lock:*");
    assert_eq!(left, Vec::<String>::new());
    assert!(!guard.is_held());
    let error = locked().await.unwrap_err();
    assert!(matches!(error, Error::ShutDown { .. }), "{error:?}");
    // A manager that was shut down can be replaced, however that happened, and by one call only.
    for round in 0..3 {
        let next = LockManager::in_memory();
        install(next.clone()).unwrap();
        locked().await.unwrap();
        distlock::with_manager(manager.clone(), async {
            let error = locked().await.unwrap_err();
            assert!(matches!(error, Error::ShutDown { .. }), "{error:?}");
        })
        .await;
        let error = install(LockManager::in_memory()).unwrap_err();
        assert!(matches!(error, Error::AlreadyInstalled), "{error:?}");
        locked().await.unwrap();
        match round {
            0 => next.clone().shutdown().await,
            _ => distlock::shutdown().await,
        }
        assert!(next.is_shut_down() && installed().unwrap().is_shut_down());
    }
    let installs = (0..8).map(|_| std::thread::spawn(|| install(LockManager::in_memory()).is_ok()));
    let installs: Vec<_> = installs.collect();
    let succeeded = installs.into_iter().map(|it| it.join().unwrap());
    assert_eq!(succeeded.filter(|it| *it).count(), 1);
}

/// No other test runs in this process, so the I/O threads can be counted.
#[test]
fn threads_end_with_their_managers() {
    if std::path::Path::new("/proc/self/task").exists() {
        scenario("threads", &[]);
    }
}

async fn threads() {
    let io_threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.trim() == "distlock-io").count()
    };
    let server = RedisServer::start();
    let mut managers = Vec::new();
    for _ in 0..5 {
        managers.push(LockManager::in_memory());
        managers.push(LockManager::connect(&server.url()).await.unwrap());
    }
    // A thread sets its name shortly after it starts.
    distlock_tests::eventually_async(PATIENCE, async || io_threads() == 10).await;
    let kept = managers.pop().unwrap();
    let clone = kept.clone();
    let guard = kept.lock("k").acquire().await.unwrap();
    drop((kept, managers));
    distlock_tests::eventually_async(PATIENCE, async || io_threads() == 1).await;
    drop(clone);
    assert!(guard.is_held());
    assert_eq!(io_threads(), 1, "a guard keeps its manager");
    guard.release().await.unwrap();
    distlock_tests::eventually_async(PATIENCE, async || io_threads() == 0).await;
    // A failed connect leaves no thread either.
    let url = server.url();
    server.kill();
    assert!(LockManager::connect(&url).await.is_err());
    distlock_tests::eventually_async(PATIENCE, async || io_threads() == 0).await;
}

/// The environment names the store and the credentials, as containers deliver it. The error of a
/// mistake names the variable.
#[test]
fn the_environment_names_a_store() {
    let server = RedisServer::start();
    let guarded = RedisServer::builder().requirepass("hunter2").start();
    let open = server.url();
    let port = guarded.port();
    let connects = format!(
        r#"
URL=memory:
URL={open}|USERNAME=|PASSWORD=|NAMESPACE=|LEASE=|WAIT=|SENTINEL_PASSWORD=
URL={open}|USERNAME=\n|PASSWORD=\n|NAMESPACE= |LEASE=\r\n|WAIT=\n
URL= {open}\r\n|NAMESPACE= shop\r\n
URL=redis://127.0.0.1:{port}|PASSWORD=hunter2
URL=redis://127.0.0.1:{port}|PASSWORD=hunter2\r\n|USERNAME=default\n"#
    );
    for line in connects.lines().skip(1) {
        scenario("set", &variables(line));
    }
    for fence in ["distlock:fence:{k}", "shop:fence:{k}"] {
        assert!(server.client().exists(fence), "{fence}");
    }
    let refused = format!(
        r#"
URL= => DISTLOCK_URL is not set, or empty; set it to a URL such as redis://127.0.0.1:6379
PASSWORD=hunter2 => DISTLOCK_URL is not set
URL=ftp://user:hunter2@host => DISTLOCK_URL has an unknown scheme
URL=127.0.0.1:6379 => DISTLOCK_URL has no scheme (`redis://` before host and port)
URL=localhost => DISTLOCK_URL has no scheme
URL="redis://127.0.0.1" => DISTLOCK_URL has quotes
URL=redis://127.0.0.1:63\n79 => DISTLOCK_URL has a line break
URL=redis://a b => DISTLOCK_URL has white space
URL=redis://127.0.0.1:{port} => or set DISTLOCK_PASSWORD
URL=redis://127.0.0.1:{port}|USERNAME=default => DISTLOCK_USERNAME is set, but DISTLOCK_PASSWORD is not
URL=redis://127.0.0.1:{port}|USERNAME=no|PASSWORD=hunter2 => fix DISTLOCK_USERNAME and DISTLOCK_PASSWORD
URL=redis://127.0.0.1:{port}|PASSWORD='hunter2' => fix DISTLOCK_PASSWORD, which has quotes around its value
URL=redis://:hunter2@127.0.0.1:{port}|PASSWORD=hunter2 => remove them from DISTLOCK_URL
URL={open}|PASSWORD=hunter2 => unset DISTLOCK_PASSWORD
URL={open}|SENTINEL_PASSWORD=hunter2 => DISTLOCK_SENTINEL_PASSWORD was set, but DISTLOCK_URL names no
URL=memory:|NAMESPACE="staging" => DISTLOCK_NAMESPACE has quotes
URL=memory:|NAMESPACE=my shop => DISTLOCK_NAMESPACE must be 1 to 64
URL=memory:|LEASE=15 => DISTLOCK_LEASE is not a duration
URL=memory:|LEASE=10ms => DISTLOCK_LEASE is 10ms; set it to at least 50ms
URL=memory:|WAIT=25h => DISTLOCK_WAIT is 90000s; set it to at most 24h"#
    );
    for line in refused.lines().skip(1) {
        let (line, part) = line.split_once(" => ").unwrap();
        let message = scenario("refused", &variables(line));
        assert!(message.contains(part), "{line}: no {part} in {message}");
    }
}

/// Returns the variables of a line. `\n` and `\r` are line breaks.
fn variables(line: &str) -> Vec<(String, String)> {
    let variable = |text: &str| {
        let (name, value) = text.split_once('=').unwrap();
        let value = value.replace(r"\n", "\n").replace(r"\r", "\r");
        (format!("DISTLOCK_{name}"), value)
    };
    line.split('|').map(variable).collect()
}

async fn from_env_set() {
    let manager = LockManager::from_env().await.unwrap();
    drop(manager.lock("k").acquire().await.unwrap());
    manager.shutdown().await;
}

async fn from_env_refused() -> String {
    let error = LockManager::from_env().await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    let message = error.to_string();
    assert!(!message.contains("hunter"), "{message}");
    message
}

/// A call's own values go before the builder's, these before the environment, and that before the
/// built-in ones. This is so for each kind of lock.
#[test]
fn lease_and_wait_have_defaults_of_the_manager() {
    scenario("defaults", &variables("URL=memory:|LEASE=1m|WAIT=0"));
}

#[distributed_lock(keys = ["a", "b"], manager = locks)]
async fn two(locks: &LockManager) -> Result<(Duration, Option<Error>), Error> {
    let again = locks.clone();
    let busy = tokio::spawn(async move { of_two(&again).await.err() });
    Ok((distlock::current().remaining(), busy.await.unwrap()))
}

#[distributed_lock(key = "a", manager = locks)]
async fn of_two(locks: &LockManager) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "permit", permits = 1, lease = "4h", wait = "300ms", manager = locks)]
async fn permit(locks: &LockManager) -> Result<Duration, Error> {
    Ok(distlock::current_permit().remaining())
}

#[distributed_lock(key = "a", lease = "30s", on_busy = "skip", manager = locks)]
async fn skipping(locks: &LockManager) -> Result<Option<Duration>, Error> {
    Ok(Some(distlock::current().remaining()))
}

async fn defaults() {
    const MINUTE: Duration = Duration::from_secs(60);
    let ms = Duration::from_millis;
    let builder = LockManager::builder;
    let times = builder().lease(60 * MINUTE).wait(ms(300));
    let times = times.connect_from_env().await.unwrap();
    let environment = builder().connect_from_env().await.unwrap();
    for (locks, lease, waits) in [
        (LockManager::in_memory(), MINUTE / 2, None),
        (environment, MINUTE, Some(false)),
        (times, 60 * MINUTE, Some(true)),
    ] {
        let assert_lease = |remaining: Duration, lease: Duration| {
            assert!(remaining > lease / 2 && remaining <= lease, "{remaining:?}");
        };
        // A call that waits has the time in its error.
        let assert_busy = |error: Error, waits: bool| {
            let is_expected = error.to_string().contains("waited") == waits;
            assert!(error.is_busy() && is_expected, "{error}");
        };
        let guard = locks.lock("a").acquire().await.unwrap();
        assert_lease(guard.remaining(), lease);
        let permit_guard = locks.semaphore("permit", 1).acquire().await.unwrap();
        assert_lease(permit_guard.remaining(), lease);
        let read = locks.rw_lock("rw").read().await.unwrap();
        assert_lease(read.remaining(), lease);
        if let Some(waits) = waits {
            let several = locks.lock_all(["a", "b"]).acquire().await;
            assert_busy(of_two(&locks).await.unwrap_err(), waits);
            assert_busy(several.map(drop).unwrap_err(), waits);
            let write = locks.rw_lock("rw").write().await;
            assert_busy(write.map(drop).unwrap_err(), waits);
            let permit = locks.semaphore("permit", 1).acquire().await;
            assert_busy(permit.map(drop).unwrap_err(), waits);
        }
        assert_busy(permit(&locks).await.unwrap_err(), true);
        assert_eq!(skipping(&locks).await.unwrap(), None);
        let tried = locks.lock("a").try_run(async |_| Ok::<_, Error>(())).await;
        assert!(matches!(tried, Ok(RunOutcome::Skipped(_))), "{tried:?}");
        drop((guard, permit_guard, read));
        let own = locks.lock("own").lease(4 * 60 * MINUTE).acquire().await;
        assert_lease(own.unwrap().remaining(), 4 * 60 * MINUTE);
        let is_free = async || locks.list("").await.unwrap().is_empty();
        distlock_tests::eventually_async(PATIENCE, is_free).await;
        assert_lease(skipping(&locks).await.unwrap().unwrap(), MINUTE / 2);
        assert_lease(permit(&locks).await.unwrap(), 4 * 60 * MINUTE);
        if let Some(waits) = waits {
            let (remaining, error) = two(&locks).await.unwrap();
            assert_lease(remaining, lease);
            assert_busy(error.unwrap(), waits);
        }
    }

    let quorum = "redis+quorum://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    let long = builder()
        .lease(60 * MINUTE)
        .quorum(distlock::Quorum::new().max_lease(MINUTE));
    let too_long = 1_441 * MINUTE;
    let lazy = builder().wait(too_long).connect_lazy("redis://127.0.0.1:1");
    let connected = builder().lease(too_long).connect("memory:").await;
    for (refused, part) in [
        (builder().lease(ms(49)).in_memory(), "the lease is 49ms"),
        (connected, "at most 24h"),
        (lazy, "the wait is"),
        (long.connect(quorum).await, "the lease is 3600s"),
    ] {
        let error = refused.map(drop).unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
    }
    // Such a call would get the key at the end of `min_hold`, and run the job a second time.
    for wait in [MINUTE / 6, MINUTE] {
        let locks = builder().wait(wait).in_memory().unwrap();
        let job = |shortest| locks.lock("job").min_hold(shortest);
        let error = job(wait).acquire().await.unwrap_err().to_string();
        assert!(error.contains(&format!("the wait is {wait:?}")), "{error}");
        assert!(
            job(wait)
                .try_acquire()
                .await
                .is_ok_and(|guard| guard.is_some())
        );
        drop(job(2 * wait).acquire().await.unwrap());
    }
}

#[distributed_lock(key = "two-<n>", manager = locks)]
async fn locked_by(locks: &LockManager, n: u8) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "two-<n>")]
async fn locked_by_default(n: u8) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "one-<n>", manager = locks)]
async fn locked_elsewhere_only(locks: &LockManager, n: u8) -> Result<(), Error> {
    Ok(())
}

/// A template that is locked on two servers does not exclude. This is logged once.
#[test]
fn one_template_on_two_servers_is_logged_once() {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let mut command: Command = this_test_binary("scenarios", &["two servers"]);
    command.env("DISTLOCK_URL", first.url());
    command.env("OTHER_URL", second.url());
    let mut child = Worker::spawn(&mut command);
    let lines = std::iter::from_fn(|| Some(child.next_line(PATIENCE)));
    let output = lines.take_while(|line| line != "done");
    let warnings: Vec<_> = output.filter(|line| line.contains("WARN")).collect();
    assert!(child.wait(PATIENCE).success());
    let [warning] = &warnings[..] else {
        panic!("{warnings:#?}");
    };
    let ports = [first.port(), second.port()].map(|port| port.to_string());
    for part in ["two-<n>", &ports[0], &ports[1]] {
        assert!(warning.contains(part), "{part} is not in {warning}");
    }
}

async fn two_servers() {
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stdout)
        .init();
    install(LockManager::from_env().await.unwrap()).unwrap();
    let url = std::env::var("OTHER_URL").unwrap();
    let other = LockManager::connect(&url).await.unwrap();
    // Tenants of one server, and stores for tests, are not logged.
    let tenant = LockManager::builder().namespace("tenant");
    let tenant = tenant
        .connect(&std::env::var("DISTLOCK_URL").unwrap())
        .await
        .unwrap();
    let memory = LockManager::in_memory();
    for round in 0..3 {
        locked_by_default(round).await.unwrap();
        locked_by(&tenant, round).await.unwrap();
        locked_by(&memory, round).await.unwrap();
        locked_elsewhere_only(&other, round).await.unwrap();
    }
    println!("and now");
    for round in 0..3 {
        locked_by(&other, round).await.unwrap();
        distlock::with_manager(other.clone(), locked_by_default(round))
            .await
            .unwrap();
        locked_by_default(round).await.unwrap();
    }
}
