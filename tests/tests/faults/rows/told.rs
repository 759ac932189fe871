//! What a log says at INFO while something is wrong: one line when the store is lost, one when it is back,
//! renewals that fail once a second, and each lock that was lost.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use distlock::{Credentials, LockManager};
use distlock_tests::{
    After, RedisServer, Reply, Resp, Worker, child_args, is_child, this_test_binary,
};

use crate::credentials::add_user;
use crate::kit::{LONG, connect, failed, lock_key, ms};
use crate::rows::runtime;

/// Does what it is told on stdin, and logs to stdout.
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
            match line.trim() {
                "hold" => {
                    for n in 0..3 {
                        let lock = manager.lock(format!("held:{n}")).label("held:<n>");
                        held.push(lock.lease(ms(3_000)).acquire().await.unwrap());
                    }
                    println!("told: holds");
                }
                "try" => {
                    let tried = manager.lock("tried").wait(ms(300)).acquire().await;
                    println!(
                        "told: {}",
                        tried.map_or_else(|e| e.to_string(), |_| "ok".into())
                    );
                }
                "mix" => {
                    for _ in 0..200 {
                        let busy = manager.lock("held:0").try_acquire().await;
                        assert!(busy.unwrap().is_none());
                        assert!(manager.lock("free").try_acquire().await.is_err());
                    }
                    println!("told: mixed");
                }
                "release" => {
                    for guard in held.drain(..) {
                        guard.release().await.unwrap();
                    }
                    println!("told: released");
                }
                "drop" => {
                    held.clear();
                    println!("told: dropped");
                }
                "lost" => {
                    for guard in held.drain(..) {
                        guard.lost().await;
                    }
                    println!("told: lost");
                }
                _ => break,
            }
        }
        manager.shutdown().await;
    });
    println!("told: end");
}

/// As the user `app`, whose password stands in a file.
async fn connect_as_app(url: &str, file: &str) -> LockManager {
    let file = PathBuf::from(file);
    let builder = LockManager::builder().url(url).credentials(move || {
        let password = fs::read_to_string(&file);
        async move { Ok(Credentials::new("app", password?)) }
    });
    let builder = builder.credentials_every(ms(1_000));
    builder.connect().await.expect("the server is up")
}

/// A process that logs at INFO, and its server.
pub(super) struct Service {
    pub(super) server: RedisServer,
    worker: Worker,
    pub(super) lines: Vec<String>,
}

impl Service {
    pub(super) fn start() -> Self {
        let server = RedisServer::start();
        let url = server.url();
        Service::at(server, url)
    }

    fn at(server: RedisServer, url: String) -> Self {
        Service::with(server, &[&url])
    }

    fn with(server: RedisServer, args: &[&str]) -> Self {
        let worker = Worker::spawn(&mut this_test_binary("rows::told::entry", args));
        Service {
            server,
            worker,
            lines: Vec::new(),
        }
    }

    pub(super) fn tell(&mut self, what: &str) -> String {
        self.worker.send(what);
        self.until(|line| line.starts_with("told: "))
    }

    /// Reads the log up to a line.
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
        let is_it = |line: &&String| line.contains(level) && line.contains(words);
        self.lines.iter().filter(is_it).count()
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.server.port())
    }

    fn raw(&self) -> Resp {
        self.server.client()
    }
}

pub(super) const LOST: &str = "the lock store cannot be used";
pub(super) const BACK: &str = "the lock store can be used again";

/// Each outage is told once when it begins and once when it is over, with the address.
fn outage(
    service: &mut Service,
    name: &str,
    begins: impl Fn(&RedisServer),
    ends: impl Fn(&RedisServer),
) {
    let before = (service.count("WARN", LOST), service.count("INFO", BACK));
    begins(&service.server);
    for _ in 0..5 {
        let said = service.tell("try");
        assert!(said.contains("unavailable"), "{name}: {said}");
    }
    if service.count("WARN", LOST) == before.0 {
        service.until(|line| line.contains(LOST));
    }
    ends(&service.server);
    while service.tell("try") != "told: ok" {}
    if service.count("INFO", BACK) == before.1 {
        service.until(|line| line.contains(BACK));
    }
    let after = (service.count("WARN", LOST), service.count("INFO", BACK));
    assert_eq!(
        after,
        (before.0 + 1, before.1 + 1),
        "{name}: {:#?}",
        service.lines
    );
    let address = service.address();
    let news = |line: &&String| line.contains(LOST) || line.contains(BACK);
    for line in service.lines.iter().filter(news) {
        assert!(line.contains(&address), "{name}: {line}");
    }
}

#[test]
fn each_outage_is_told_once_and_so_is_its_end() {
    let ok = Reply::Status("OK".into());
    let mut service = Service::start();
    assert_eq!(service.tell("try"), "told: ok");
    outage(
        &mut service,
        "frozen",
        RedisServer::stop_process,
        RedisServer::cont_process,
    );
    outage(
        &mut service,
        "killed",
        RedisServer::kill,
        RedisServer::restart,
    );
    let set = |name: &'static str, value: &'static str| {
        let ok = ok.clone();
        move |server: &RedisServer| {
            assert_eq!(server.client().cmd(&["CONFIG", "SET", name, value]), ok);
        }
    };
    outage(
        &mut service,
        "full",
        set("maxmemory", "1"),
        set("maxmemory", "0"),
    );
    let rights = |right: &'static str| {
        move |server: &RedisServer| {
            let reply = server.client().cmd(&["ACL", "SETUSER", "default", right]);
            assert_eq!(reply, Reply::Status("OK".into()));
        }
    };
    outage(&mut service, "forbidden", rights("-time"), rights("+time"));
    service.tell("end");
}

#[test]
fn renewals_that_fail_are_told_once_a_second_and_a_loss_is_an_error() {
    let mut service = Service::start();
    assert_eq!(service.tell("hold"), "told: holds");
    service.server.stop_process();
    assert_eq!(service.tell("lost"), "told: lost");
    let lost = "the lock was lost while it was held";
    while service.count("ERROR", lost) < 3 {
        service.until(|line| line.contains(lost));
    }
    service.server.cont_process();
    service.tell("end");
    // A lease of three seconds: at most three lines, one a second.
    let failing = "renewals fail and are tried again";
    let told = service.count("WARN", failing);
    assert!(
        (1..=4).contains(&told),
        "{told} lines: {:#?}",
        service.lines
    );
    let line = service
        .lines
        .iter()
        .find(|line| line.contains(failing) && line.contains("holds=3"))
        .unwrap_or_else(|| panic!("not all three are told of: {:#?}", service.lines));
    for part in ["held:<n>", "lost_in=", &service.address()] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    // Each hold once, with its key and its template.
    assert_eq!(service.count("ERROR", lost), 3, "{:#?}", service.lines);
    for n in 0..3 {
        assert_eq!(service.count("ERROR", &format!("key=held:{n}")), 1);
    }
}

#[test]
fn a_lock_that_vanished_before_its_guard_was_dropped_is_an_error() {
    let mut service = Service::start();
    assert_eq!(service.tell("hold"), "told: holds");
    service.raw().cmd(&["DEL", &lock_key("held:1")]);
    assert_eq!(service.tell("drop"), "told: dropped");
    let line = service.until(|line| line.contains("ERROR"));
    assert!(line.contains("key=held:1"), "{line}");
    std::thread::sleep(Duration::from_millis(200));
    service.tell("end");
    assert_eq!(service.count("ERROR", ""), 1, "{:#?}", service.lines);
}

/// The second release of a lock finds nothing, for the first was applied and its answer was lost.
#[test]
fn a_release_whose_answer_was_lost_is_no_loss() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let url = server.url_via(&proxy);
    let mut service = Service::at(server, url);
    assert_eq!(service.tell("hold"), "told: holds");
    proxy.swallow_reply_to("EVALSHA", After::Reset);
    assert_eq!(service.tell("release"), "told: released");
    let mut raw = service.raw();
    distlock_tests::eventually(LONG, || raw.keys("distlock:lock:*").is_empty());
    assert_eq!(service.tell("try"), "told: ok");
    service.tell("end");
    assert_eq!(service.count("ERROR", ""), 0, "{:#?}", service.lines);
}

/// Answers that write nothing say nothing of a server that refuses to write.
#[test]
fn a_server_that_refuses_some_calls_is_told_of_once() {
    let mut service = Service::start();
    assert_eq!(service.tell("hold"), "told: holds");
    service.raw().cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(service.tell("mix"), "told: mixed");
    service.raw().cmd(&["CONFIG", "SET", "maxmemory", "0"]);
    while service.tell("try") != "told: ok" {}
    while service.count("INFO", BACK) == 0 {
        service.until(|line| line.contains(BACK));
    }
    service.tell("end");
    assert_eq!(service.count("WARN", LOST), 1, "{:#?}", service.lines);
}

/// Connections that live go on with the credentials that they have, and that is told once.
#[test]
fn connections_that_cannot_be_told_their_credentials_are_told_of_once() {
    const NOT_TOLD: &str = "the connections that live could not be told the credentials";
    let server = RedisServer::start();
    let mut raw = server.client();
    add_user(&mut raw, "app", "hunter2");
    let file = server.dir().join("password");
    fs::write(&file, "hunter2").unwrap();
    let (url, path) = (server.url(), file.display().to_string());
    let mut service = Service::with(server, &[&url, &path]);
    assert_eq!(service.tell("try"), "told: ok");
    fs::write(&file, "hunter3").unwrap();
    let line = service.until(|line| line.contains(NOT_TOLD));
    for part in ["WARN", "WRONGPASS", &service.address()] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    // It is tried again, and fails again.
    let before = failed(&mut raw, "auth");
    distlock_tests::eventually(LONG, || failed(&mut raw, "auth") > before);
    assert_eq!(service.tell("try"), "told: ok");
    service.tell("end");
    assert_eq!(service.count("WARN", NOT_TOLD), 1, "{:#?}", service.lines);
    assert_eq!(service.count("", "hunter"), 0, "{:#?}", service.lines);
}
