//! Passwords that change while a manager lives.

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use distlock::{Credentials, LockGuard, LockManager, LockManagerBuilder};
use distlock_tests::{RedisServer, Resp, eventually_async};
use tokio::runtime::Handle;

use crate::support::{
    LONG, assert_config, assert_message_contains, call_often, hold, kill, ms, ok, taken_once,
    until_clean, until_served,
};

/// Error text that makes the provider panic.
const PANIC: &str = "panic";

/// Error text with which the provider returns an error that has none.
const NO_TEXT: &str = "no text";

#[derive(Debug)]
struct NoText;

impl fmt::Display for NoText {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Err(fmt::Error)
    }
}

impl std::error::Error for NoText {}

/// A provider of credentials.
#[derive(Clone)]
pub(crate) struct Vault {
    now: Arc<Mutex<Result<Credentials, String>>>,
    requests: Arc<AtomicUsize>,
}

impl Vault {
    pub(crate) fn new(user: &str, password: &str) -> Self {
        Vault {
            now: Arc::new(Mutex::new(Ok(Credentials::new(user, password)))),
            requests: Arc::default(),
        }
    }

    pub(crate) fn set(&self, what: Result<Credentials, &str>) {
        *self.now.lock().unwrap() = what.map_err(str::to_owned);
    }

    /// Returns how often the provider was called.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn builder(&self) -> LockManagerBuilder {
        let vault = self.clone();
        LockManager::builder().credentials_provider(move || {
            let vault = vault.clone();
            async move {
                vault.requests.fetch_add(1, Ordering::SeqCst);
                let now = vault.now.lock().unwrap().clone();
                assert!(
                    !matches!(&now, Err(why) if why == PANIC),
                    "a bug in the provider"
                );
                now.map_err(|why| match &*why {
                    NO_TEXT => NoText.into(),
                    _ => why.into(),
                })
            }
        })
    }
}

pub(crate) fn add_user(raw: &mut Resp, name: &str, password: &str) {
    let password = format!(">{password}");
    let permissions = ["reset", "on", &password, "~*", "&*", "+@all"];
    ok(raw, &[&["ACL", "SETUSER", name][..], &permissions].concat());
}

/// Returns the users of all connections except this one.
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
    kill(raw, "normal");
    kill(raw, "pubsub");
}

/// A server with the users of the provider, and a long hold.
struct Kept {
    raw: Resp,
    manager: LockManager,
    held: LockGuard,
    server: RedisServer,
}

impl Kept {
    async fn start(vault: &Vault, users: &[(&str, &str)]) -> Self {
        let server = RedisServer::start();
        let mut raw = server.client();
        for (user, password) in users {
            add_user(&mut raw, user, password);
        }
        let builder = vault.builder().credentials_refresh_interval(ms(1_000));
        assert!(!format!("{builder:?}").contains("hunter2"));
        let manager = builder.connect(&server.url()).await.unwrap();
        Kept {
            held: hold(&manager, "held", ms(30_000)).await,
            raw,
            manager,
            server,
        }
    }

    /// Waits until calls fail with an error that contains `text`.
    async fn until_refused(&self, text: &str) {
        eventually_async(LONG, async || {
            let refused = self.manager.lock("k").wait(ms(100)).acquire().await;
            refused.is_err_and(|error| error.to_string().contains(text))
        })
        .await;
    }

    /// Checks that the hold was not lost, and ends it.
    async fn end(mut self) {
        assert!(self.held.is_held());
        self.held.release().await.unwrap();
        until_clean(&mut self.raw, LONG).await;
    }
}

/// All live connections, runtime connections too, change to the current credentials, and no hold is
/// lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_connections_receive_new_credentials() {
    let vault = Vault::new("one", "first");
    let mut kept = Kept::start(&vault, &[("one", "first"), ("two", "second")]).await;
    eventually_async(LONG, async || {
        call_often(&Handle::current(), &kept.manager, "warm").await;
        users(&mut kept.raw) == ["one", "one", "one"]
    })
    .await;
    vault.set(Ok(Credentials::new("two", "second")));
    let changed = async || users(&mut kept.raw) == ["two", "two", "two"];
    eventually_async(LONG, changed).await;
    // No connection depends on the old user.
    kept.raw.cmd(&["ACL", "DELUSER", "one"]);
    assert_eq!(users(&mut kept.raw).len(), 3, "none was cut");
    kept.end().await;
}

/// The password changes, and all connections are cut. New connections use the new password, and the
/// hold survives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_password_is_survived() {
    let vault = Vault::new("app", "first");
    let mut kept = Kept::start(&vault, &[("app", "first")]).await;
    for password in ["second", "third"] {
        add_user(&mut kept.raw, "app", password);
        cut(&mut kept.raw);
        // The provider changes later than the server.
        kept.until_refused("WRONGPASS").await;
        vault.set(Ok(Credentials::new("app", password)));
        until_served(&kept.manager).await;
        assert!(kept.held.is_held(), "{password}");
    }
    kept.end().await;
}

/// While the provider fails, live connections stay, calls report the reason, and no secret is
/// shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_credentials_source_is_retried() {
    const SEALED: &str = "the vault is sealed";
    let vault = Vault::new("app", "hunter2");
    let mut kept = Kept::start(&vault, &[("app", "hunter2")]).await;
    for (failure, text) in [
        (SEALED, SEALED),
        (PANIC, "it panicked"),
        (NO_TEXT, "its error has no text"),
    ] {
        vault.set(Err(failure));
        cut(&mut kept.raw);
        kept.until_refused(text).await;
    }
    vault.set(Err(SEALED));
    let error = vault.builder().connect(&kept.server.url()).await;
    let error = error.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    assert_message_contains(&error, &[SEALED]);
    vault.set(Ok(Credentials::new("app", "hunter2")));
    until_served(&kept.manager).await;
    vault.set(Err(SEALED));
    let before = vault.requests();
    eventually_async(LONG, async || vault.requests() > before + 1).await;
    taken_once(&kept.manager, "k").await;
    kept.end().await;
}

/// This includes a password for a server that requires none, because another server is meant.
#[tokio::test]
async fn settings_that_contradict_each_other_are_refused() {
    let open = RedisServer::start();
    let guarded = RedisServer::builder().requirepass("hunter2").start();
    let vault = Vault::new("default", "hunter2");
    let alone = LockManager::builder();
    for (url, builder, part) in [
        (open.url(), vault.builder(), "requirepass"),
        (guarded.url(), vault.builder(), "from the URL"),
        (
            open.url(),
            vault.builder().credentials_refresh_interval(ms(10)),
            "credentials_refresh_interval",
        ),
        (
            open.url(),
            alone.credentials_refresh_interval(LONG),
            "credentials_refresh_interval",
        ),
    ] {
        assert_config(&builder.connect(&url).await.unwrap_err(), &[part]);
    }
}
