//! Passwords that change while a manager lives.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use distlock::{Credentials, Error, LockManager, LockManagerBuilder, Outage};
use distlock_tests::{RedisServer, Resp, eventually_async, within};

use crate::kit::{HELD, LONG, ms, taken_once, until_clean};

/// What makes the source panic.
const PANIC: &str = "panic";

/// Whoever keeps the password.
#[derive(Clone)]
pub(crate) struct Vault {
    now: Arc<Mutex<Result<Credentials, String>>>,
    asked: Arc<AtomicUsize>,
}

impl Vault {
    pub(crate) fn new(user: &str, password: &str) -> Self {
        Vault {
            now: Arc::new(Mutex::new(Ok(Credentials::new(user, password)))),
            asked: Arc::default(),
        }
    }

    pub(crate) fn set(&self, what: Result<Credentials, &str>) {
        *self.now.lock().unwrap() = what.map_err(str::to_owned);
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub(crate) fn builder(&self, url: &str) -> LockManagerBuilder {
        let vault = self.clone();
        LockManager::builder().url(url).credentials(move || {
            let vault = vault.clone();
            async move {
                vault.asked.fetch_add(1, Ordering::SeqCst);
                let now = vault.now.lock().unwrap().clone();
                assert!(
                    !matches!(&now, Err(why) if why == PANIC),
                    "a bug in the source"
                );
                now.map_err(Into::into)
            }
        })
    }
}

pub(crate) fn add_user(raw: &mut Resp, name: &str, password: &str) {
    let password = format!(">{password}");
    let set = raw.cmd(&[
        "ACL", "SETUSER", name, "reset", "on", &password, "~*", "&*", "+@all",
    ]);
    assert_eq!(set.text().unwrap(), "OK");
}

/// The users of all connections but this one.
pub(crate) fn users(raw: &mut Resp) -> Vec<String> {
    let own = format!("id={} ", raw.cmd(&["CLIENT", "ID"]).int());
    let list = raw.cmd(&["CLIENT", "LIST"]);
    let lines = list.text().unwrap().lines();
    let others = lines.filter(|line| !line.starts_with(&own));
    let user = |line: &str| {
        let mut fields = line.split(' ');
        fields.find_map(|field| field.strip_prefix("user=").map(str::to_owned))
    };
    others.filter_map(user).collect()
}

fn cut(raw: &mut Resp) {
    raw.cmd(&["CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES"]);
    raw.cmd(&["CLIENT", "KILL", "TYPE", "PUBSUB"]);
}

/// All connections that live, a lane too, change over to the credentials of the moment, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_connections_are_told_the_credentials_of_the_moment() {
    let server = RedisServer::start();
    let mut raw = server.client();
    add_user(&mut raw, "one", "first");
    add_user(&mut raw, "two", "second");
    let vault = Vault::new("one", "first");
    let builder = vault.builder(&server.url()).credentials_every(ms(1_000));
    let manager = builder.connect().await.unwrap();
    let held = manager.lock("held").lease(HELD).acquire().await.unwrap();
    eventually_async(LONG, async || {
        let lock = manager.lock("warm").wait(LONG);
        let calls = async move {
            for _ in 0..20 {
                lock.acquire().await.unwrap().release().await.unwrap();
            }
        };
        tokio::spawn(calls).await.unwrap();
        users(&mut raw) == ["one", "one", "one"]
    })
    .await;
    vault.set(Ok(Credentials::new("two", "second")));
    eventually_async(LONG, async || users(&mut raw) == ["two", "two", "two"]).await;
    // Nothing depends on the old one any more.
    raw.cmd(&["ACL", "DELUSER", "one"]);
    assert_eq!(users(&mut raw).len(), 3, "none was cut");
    assert!(held.is_held());
    held.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

/// Whoever has a password means a server that asks for one.
#[tokio::test]
async fn a_server_without_a_password_is_another_one() {
    let server = RedisServer::start();
    let vault = Vault::new("default", "hunter2");
    let error = vault.builder(&server.url()).connect().await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    assert!(
        shown.contains("requirepass") && !shown.contains("hunter2"),
        "{shown}"
    );
}

/// The password is changed, and all connections are cut: the next ones have the new one, and what was held still is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_password_is_survived() {
    let server = RedisServer::start();
    let mut raw = server.client();
    add_user(&mut raw, "app", "first");
    let vault = Vault::new("app", "first");
    let manager = vault.builder(&server.url()).connect().await.unwrap();
    let held = manager
        .lock("held")
        .lease(ms(30_000))
        .acquire()
        .await
        .unwrap();
    for password in ["second", "third"] {
        add_user(&mut raw, "app", password);
        cut(&mut raw);
        // The vault is later than the server.
        eventually_async(LONG, async || {
            let refused = manager.lock("k").wait(ms(100)).acquire().await;
            matches!(refused, Err(Error::Unavailable { outage, .. }) if outage == Outage::Denied)
        })
        .await;
        vault.set(Ok(Credentials::new("app", password)));
        eventually_async(LONG, async || {
            manager.lock("k").wait(ms(100)).acquire().await.is_ok()
        })
        .await;
        assert!(held.is_held());
    }
    held.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

/// Whoever keeps the password is away: what is connected stays so, what is not is told why, and no secret is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_fails_is_asked_again() {
    let server = RedisServer::start();
    let mut raw = server.client();
    add_user(&mut raw, "app", "hunter2");
    let vault = Vault::new("app", "hunter2");
    vault.set(Err("the vault is sealed"));
    let error = vault.builder(&server.url()).connect().await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert!(error.to_string().contains("the vault is sealed"), "{error}");

    vault.set(Ok(Credentials::new("app", "hunter2")));
    let builder = vault.builder(&server.url()).credentials_every(ms(1_000));
    assert!(!format!("{builder:?}").contains("hunter2"));
    let manager = builder.connect().await.unwrap();
    let held = manager
        .lock("held")
        .lease(ms(30_000))
        .acquire()
        .await
        .unwrap();
    for failure in ["the vault is sealed", PANIC] {
        vault.set(Err(failure));
        cut(&mut raw);
        let says = if failure == PANIC {
            "it panicked"
        } else {
            failure
        };
        eventually_async(LONG, async || {
            match manager.lock("k").wait(ms(100)).acquire().await {
                Err(error) => error.to_string().contains(says),
                Ok(_) => false,
            }
        })
        .await;
    }
    vault.set(Ok(Credentials::new("app", "hunter2")));
    let guard = within(LONG, manager.lock("k").wait(LONG).acquire())
        .await
        .unwrap();
    guard.release().await.unwrap();
    vault.set(Err("the vault is sealed"));
    let before = vault.asked();
    eventually_async(LONG, async || vault.asked() > before + 1).await;
    taken_once(&manager, "k").await;
    assert!(held.is_held());
    held.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

#[tokio::test]
async fn settings_that_contradict_each_other_are_refused() {
    let server = RedisServer::builder().requirepass("hunter2").start();
    let vault = Vault::new("default", "hunter2");
    let error = vault.builder(&server.url()).connect().await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    assert!(
        shown.contains("out of the URL") && !shown.contains("hunter2"),
        "{shown}"
    );

    let server = RedisServer::start();
    let often = vault.builder(&server.url()).credentials_every(ms(10));
    let alone = LockManager::builder()
        .url(server.url())
        .credentials_every(LONG);
    for builder in [often, alone] {
        let error = builder.connect().await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(error.to_string().contains("credentials_every"), "{error}");
    }
}
