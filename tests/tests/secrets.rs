//! No error, no `Debug` output, and no log line of any crate contains a password, whatever fails.

// A test states its expectations by unwrapping them.
#![allow(clippy::unwrap_used)]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Credentials, LockManager, LockManagerBuilder, distributed_lock};
use distlock_tests::{RedisServer, eventually_async, sentinel};
use tracing_subscriber::fmt::MakeWriter;

const PATIENCE: Duration = Duration::from_secs(30);

/// The password, its form in a URL, and words that reveal either.
const PASSWORD: &str = "hunter2-secret/@:";
const IN_URLS: &str = "hunter2-secret%2F%40%3A";
const GIVE_AWAY: [&str; 2] = ["hunter2", "secret"];

/// Everything that was logged or shown.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Output {
    fn show(&self, what: impl std::fmt::Debug) {
        writeln!(self.clone(), "{what:?} {what:#?}").unwrap();
    }

    fn error(&self, error: distlock::Error) {
        writeln!(self.clone(), "{error}").unwrap();
        self.show(error);
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Output {
    type Writer = Output;

    fn make_writer(&'a self) -> Output {
        self.clone()
    }
}

#[distributed_lock(key = "annotated")]
async fn annotated() -> Result<(), distlock::Error> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_appears_nowhere() {
    let output = Output::default();
    let logging = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(output.clone());
    logging.init();

    let server = RedisServer::builder()
        .requirepass(PASSWORD)
        .unix_socket()
        .start();
    let port = server.port();
    wrong_credentials(&output, port).await;

    let unix = format!(
        "redis+unix://{}?pass={IN_URLS}",
        server.unix_path().display()
    );
    for url in [format!("redis://:{IN_URLS}@127.0.0.1:{port}"), unix] {
        work(&output, &server, &url, LockManager::builder()).await;
    }
    let watcher = RedisServer::builder().sentinel().requirepass(PASSWORD);
    let watcher = watcher.start();
    sentinel::watch(&watcher, "locks", &server);
    let url = format!(
        "redis+sentinel://:{IN_URLS}@127.0.0.1:{}/locks",
        watcher.port()
    );
    let builder = LockManager::builder();
    output.error(builder.clone().connect(&url).await.unwrap_err());
    let wrong = builder
        .clone()
        .sentinel_credentials(Credentials::from_password("hunter2-wrong"));
    output.error(wrong.connect(&url).await.unwrap_err());
    let builder = builder.sentinel_credentials(Credentials::from_password(PASSWORD));
    work(&output, &server, &url, builder).await;

    let text = output.text();
    // The log and the errors were recorded.
    for expected in [
        "acquired",
        "lock lost while held",
        "the lock store is unavailable",
        "distlock is misconfigured",
        "LockManager",
    ] {
        assert!(
            text.contains(expected),
            "no {expected:?} in what was output"
        );
    }
    for line in text.lines() {
        for word in GIVE_AWAY {
            assert!(!line.contains(word), "a password was shown: {line}");
        }
    }
}

async fn wrong_credentials(output: &Output, port: u16) {
    for credentials in ["user:hunter2-wrong", ":hunter2-wrong", "default:secret%20"] {
        let url = format!("redis://{credentials}@127.0.0.1:{port}");
        output.error(LockManager::connect(&url).await.unwrap_err());
    }
    // A password for a server that does not run.
    let url = format!("redis://:{IN_URLS}@127.0.0.1:1/3");
    output.error(LockManager::connect(&url).await.unwrap_err());
}

/// Shows everything that is logged during the life of a manager.
async fn work(output: &Output, server: &RedisServer, url: &str, builder: LockManagerBuilder) {
    output.show(&builder);
    let manager = builder.connect(url).await.unwrap();
    output.show(&manager);
    let lock = manager.lock("k").lease(Duration::from_millis(600));
    let short = lock.clone().wait(Duration::from_millis(100));
    output.show(&lock);
    let guard = lock.acquire().await.unwrap();
    output.show(&guard);
    output.show(manager.inspect("k").await.unwrap());
    output.error(short.acquire().await.unwrap_err());
    guard
        .scope(async { output.show(distlock::current()) })
        .await;
    server.client().cmd(&["DEL", "distlock:lock:{k}"]);
    output.error(guard.lost().await);
    output.error(guard.release().await.unwrap_err());
    distlock::with_manager(manager.clone(), annotated())
        .await
        .unwrap();
    output.error(manager.lock("").acquire().await.unwrap_err());
    server
        .client()
        .cmd(&["SET", "distlock:lock:{foreign}", "value"]);
    output.error(manager.lock("foreign").acquire().await.unwrap_err());

    // The connection is lost and reopened. The password is wrong in between.
    let guard = lock.acquire().await.unwrap();
    let mut raw = server.client();
    raw.cmd(&["CONFIG", "SET", "requirepass", "another"]);
    raw.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
    raw.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    output.error(guard.lost().await);
    drop(guard);
    output.error(short.acquire().await.unwrap_err());
    raw.cmd(&["CONFIG", "SET", "requirepass", PASSWORD]);
    let again = async || lock.acquire().await.is_ok_and(|guard| guard.is_held());
    eventually_async(PATIENCE, again).await;
    manager.shutdown().await;
    output.error(lock.acquire().await.unwrap_err());
    output.show(&manager);
}
