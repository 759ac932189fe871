//! The process-wide default manager, with each scenario in its own process.

// A test states its expectations by unwrapping them.
#![allow(clippy::unwrap_used)]

use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use distlock::observer::{self, Event};
use distlock::{Error, LockManager, distributed_lock, install, installed};
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

/// Runs a scenario below in a new process, which prints `done` at its end.
fn scenario(name: &str, environment: &[(&str, &str)]) {
    let mut command: Command = this_test_binary("scenarios", &[name]);
    for name in ["URL", "NAMESPACE", "USERNAME", "PASSWORD"] {
        command.env_remove(format!("DISTLOCK_{name}"));
    }
    command.envs(environment.iter().copied());
    let mut child = Worker::spawn(&mut command);
    child.expect_line("done", PATIENCE);
    assert!(child.wait(PATIENCE).success());
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
        "unset" => runtime.block_on(from_env_unset()),
        "set" => runtime.block_on(from_env_set()),
        "refused" => drop(runtime.block_on(from_env_refused())),
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
    // The manager stays installed, because a process does not change its default.
    let error = install(LockManager::in_memory()).unwrap_err();
    assert!(matches!(error, Error::AlreadyInstalled), "{error:?}");
    distlock::shutdown().await;
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

/// The environment names the store and the credentials.
#[test]
fn the_environment_names_a_store() {
    let open = RedisServer::start();
    scenario("set", &[("DISTLOCK_URL", &open.url())]);
    let used = open.client().exists("distlock:fence:{k}");
    assert!(used, "another store was used");
    let url = open.url();
    scenario(
        "set",
        &[("DISTLOCK_URL", &*url), ("DISTLOCK_NAMESPACE", "shop")],
    );
    let used = open.client().exists("shop:fence:{k}");
    assert!(used, "the namespace was ignored");
    scenario("set", &[("DISTLOCK_URL", "memory:")]);

    let server = RedisServer::builder().requirepass("hunter2").start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let (url, password) = (("DISTLOCK_URL", &*url), ("DISTLOCK_PASSWORD", "hunter2"));
    let name = |name| ("DISTLOCK_USERNAME", name);
    scenario("set", &[url, password]);
    scenario("set", &[url, name("default"), password]);
    scenario("refused", &[url]);
    scenario("refused", &[url, name("default")]);
    scenario("refused", &[url, name("absent"), password]);

    scenario("unset", &[]);
    scenario("refused", &[("DISTLOCK_URL", "")]);
    scenario("refused", &[("DISTLOCK_URL", "ftp://user:hunter2@host")]);
}

async fn from_env_set() {
    let manager = LockManager::from_env().await.unwrap();
    manager
        .lock("k")
        .run(async |_| Ok::<_, Error>(()))
        .await
        .unwrap();
    manager.shutdown().await;
}

async fn from_env_refused() -> String {
    let error = LockManager::from_env().await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    let message = error.to_string();
    assert!(!message.contains("hunter2"), "{message}");
    message
}

async fn from_env_unset() {
    let message = from_env_refused().await;
    for part in ["DISTLOCK_URL", "redis://"] {
        assert!(message.contains(part), "no {part} in {message}");
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
