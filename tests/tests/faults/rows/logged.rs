//! A process that logs at INFO, and its lines about lost locks and about connections.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use distlock::{Credentials, LockManager};
use distlock_tests::{After, RedisServer, Reply, Worker, child_args, is_child, this_test_binary};

use crate::credentials::add_user;
use crate::rows::runtime;
use crate::support::{LONG, accepted, connect, failed, lock_key, ms};

/// Executes commands from stdin, and logs to stdout.
#[test]
fn entry() {
    if !is_child() {
        return;
    }
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .with_writer(std::io::stdout)
        .init();
    let args = child_args();
    runtime().block_on(async {
        let manager = match &args[..] {
            [url, file] => connect_as_app(url, file).await,
            [url] => connect(url).await,
            _ => panic!("wrong arguments: {args:?}"),
        };
        let mut held = Vec::new();
        loop {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
            let reply = match line.trim() {
                "hold" => {
                    for n in 0..3 {
                        let lock = manager.lock(format!("held:{n}")).label("held:<n>");
                        held.push(lock.lease(ms(3_000)).acquire().await.unwrap());
                    }
                    "holds".to_owned()
                }
                "try" => {
                    let tried = manager.lock("tried").wait(ms(300)).acquire().await;
                    tried.map_or_else(|error| error.to_string(), |_| "ok".to_owned())
                }
                "mix" => {
                    for _ in 0..200 {
                        let busy = manager.lock("held:0").try_acquire().await;
                        assert!(busy.unwrap().is_none());
                        assert!(manager.lock("free").try_acquire().await.is_err());
                    }
                    "mixed".to_owned()
                }
                "release" => {
                    for guard in held.drain(..) {
                        guard.release().await.unwrap();
                    }
                    "released".to_owned()
                }
                "drop" => {
                    held.clear();
                    "dropped".to_owned()
                }
                "lost" => {
                    for guard in held.drain(..) {
                        guard.lost().await;
                    }
                    "lost".to_owned()
                }
                _ => break,
            };
            println!("reply: {reply}");
        }
        manager.shutdown().await;
    });
    println!("reply: end");
}

/// Connects as the user `app`, with the password from a file.
async fn connect_as_app(url: &str, file: &str) -> LockManager {
    let file = PathBuf::from(file);
    let builder = LockManager::builder().credentials_provider(move || {
        let password = fs::read_to_string(&file);
        async move { Ok(Credentials::new("app", password?)) }
    });
    let builder = builder.credentials_refresh_interval(ms(1_000));
    builder.connect(url).await.expect("the server is up")
}

/// A process that logs at INFO, and its server.
pub(super) struct Service {
    pub(super) server: RedisServer,
    worker: Worker,
    pub(super) lines: Vec<String>,
}

impl Service {
    pub(super) fn with(server: RedisServer, args: &[&str]) -> Self {
        let worker = Worker::spawn(&mut this_test_binary("rows::logged::entry", args));
        Service {
            server,
            worker,
            lines: Vec::new(),
        }
    }

    /// Starts a service that holds three locks of one template.
    pub(super) fn holding() -> Self {
        let server = RedisServer::start();
        let url = server.url();
        let mut service = Service::with(server, &[&url]);
        assert_eq!(service.command("hold"), "reply: holds");
        service
    }

    pub(super) fn command(&mut self, command: &str) -> String {
        self.worker.send(command);
        self.until(|line| line.starts_with("reply: "))
    }

    /// Ends the process, and reads its log to the end.
    pub(super) fn end(&mut self) {
        assert_eq!(self.command("end"), "reply: end");
        assert!(self.worker.wait(LONG).success());
    }

    /// Reads the log up to a matching line.
    pub(super) fn until(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        loop {
            let line = self.worker.next_line(LONG);
            self.lines.push(line.clone());
            if wanted(&line) {
                return line;
            }
        }
    }

    pub(super) fn count(&self, level: &str, words: &str) -> usize {
        self.of(level, words).count()
    }

    /// Returns the lines of a level with these words.
    pub(super) fn of<'a>(
        &'a self,
        level: &'a str,
        words: &'a str,
    ) -> impl Iterator<Item = &'a String> {
        let is_it = move |line: &&String| line.contains(level) && line.contains(words);
        self.lines.iter().filter(is_it)
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.server.port())
    }
}

/// An evicting server may remove keys with a TTL, and locks have one.
#[test]
fn an_evicting_server_is_logged_at_connect() {
    let mut server = RedisServer::start();
    let mut raw = server.client();
    raw.cmd(&["CONFIG", "SET", "maxmemory", "100mb"]);
    for policy in ["noeviction", "volatile-lru", "allkeys-random"] {
        let set = raw.cmd(&["CONFIG", "SET", "maxmemory-policy", policy]);
        assert_eq!(set, Reply::Status("OK".into()), "{policy}");
        let url = server.url();
        let mut service = Service::with(server, &[&url]);
        service.end();
        let is_warned = service.count("WARN", policy) > 0;
        let is_quiet = service.count("WARN", "") == 0;
        let evicts = policy != "noeviction";
        assert_eq!((is_warned, is_quiet), (evicts, !evicts), "{policy}");
        server = service.server;
    }
}

/// The connection for renewals carries nothing while no lock is held.
#[test]
fn an_idle_connection_that_the_server_closes_is_no_warning() {
    let server = RedisServer::builder().arg("--timeout", "1").start();
    let mut raw = server.client();
    let url = server.url();
    let mut service = Service::with(server, &[&url]);
    assert_eq!(service.command("try"), "reply: ok");
    let before = accepted(&mut raw);
    // The commands keep the connection of this test open.
    distlock_tests::eventually(LONG, || accepted(&mut raw) >= before + 2);
    assert_eq!(service.command("try"), "reply: ok");
    service.end();
    assert_eq!(service.count("WARN", ""), 0, "{:#?}", service.lines);
}

#[test]
fn a_lock_that_vanished_before_its_guard_was_dropped_is_an_error() {
    let mut service = Service::holding();
    service.server.client().cmd(&["DEL", &lock_key("held:1")]);
    assert_eq!(service.command("drop"), "reply: dropped");
    let line = service.until(|line| line.contains("ERROR"));
    assert!(line.contains("key=\"held:1\""), "{line}");
    std::thread::sleep(Duration::from_millis(200));
    service.end();
    assert_eq!(service.count("ERROR", ""), 1, "{:#?}", service.lines);
}

/// The second release of a lock finds nothing, because the first was applied and its reply was
/// lost.
#[test]
fn a_release_with_a_lost_reply_is_no_loss() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let url = server.url_via(&proxy);
    let mut service = Service::with(server, &[&url]);
    assert_eq!(service.command("hold"), "reply: holds");
    proxy.swallow_reply_to("EVALSHA", After::Reset);
    assert_eq!(service.command("release"), "reply: released");
    let mut raw = service.server.client();
    distlock_tests::eventually(LONG, || raw.keys("distlock:lock:*").is_empty());
    assert_eq!(service.command("try"), "reply: ok");
    service.end();
    assert_eq!(service.count("ERROR", ""), 0, "{:#?}", service.lines);
}

/// Live connections go on with the credentials that they have, and the failure is logged once.
#[test]
fn a_failed_re_authentication_is_logged_once() {
    const NOT_REAUTHENTICATED: &str = "failed to re-authenticate open connections";
    let server = RedisServer::start();
    let mut raw = server.client();
    add_user(&mut raw, "app", "hunter2");
    let file = server.dir().join("password");
    fs::write(&file, "hunter2").unwrap();
    let (url, path) = (server.url(), file.display().to_string());
    let mut service = Service::with(server, &[&url, &path]);
    assert_eq!(service.command("try"), "reply: ok");
    fs::write(&file, "hunter3").unwrap();
    let line = service.until(|line| line.contains(NOT_REAUTHENTICATED));
    for part in ["WARN", "WRONGPASS", &service.address()] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    // The authentication is retried, and fails again.
    let before = failed(&mut raw, "auth");
    distlock_tests::eventually(LONG, || failed(&mut raw, "auth") > before);
    assert_eq!(service.command("try"), "reply: ok");
    service.end();
    assert_eq!(
        service.count("WARN", NOT_REAUTHENTICATED),
        1,
        "{:#?}",
        service.lines
    );
    assert_eq!(service.count("", "hunter"), 0, "{:#?}", service.lines);
}
