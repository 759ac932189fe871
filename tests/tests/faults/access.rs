//! The permissions that a Redis user needs, no more and no less.

use std::collections::BTreeSet;
use std::future::IntoFuture as _;
use std::time::Instant;

use distlock::{Error, LockGuard, LockManager, RevokeOutcome};
use distlock_tests::documents::acl_rules;
use distlock_tests::{RedisServer, Reply, Resp, eventually_async, within};

use crate::replicas::{primary, replica_of};
use crate::support::{
    HELD, LONG, acquire_later, assert_message_contains, connect_patiently, lock_key, ms, ok,
    until_clean, until_queued,
};

pub(crate) const USER: &str = "distlock";
const PASSWORD: &str = "secret";

/// The page with the commands that give a user its permissions.
pub(crate) const PAGE: &str = include_str!("../../../docs/internals/storage.md");

/// Permissions without which locks are handed off later (pushes, detection of dead clients, tests
/// of connections), or an evicting server goes unnoticed.
const USEFUL: &[&str] = &["+publish", "+pubsub|numsub", "+ping", "+info"];

/// Returns the keys, the channels and the permissions of the user for one server.
pub(crate) fn all() -> Vec<&'static str> {
    let rules = acl_rules(PAGE).swap_remove(0);
    let [
        "resetkeys",
        keys,
        "resetchannels",
        channels,
        "-@all",
        permissions @ ..,
    ] = &rules[..]
    else {
        panic!("{rules:?}");
    };
    assert!(permissions.ends_with(USEFUL), "{permissions:?}");
    [&[*keys, *channels], permissions].concat()
}

pub(crate) fn set_user(raw: &mut Resp, permissions: &[&str]) {
    // Before Redis 7.0 a new user may use all channels.
    let mut words = vec!["ACL", "SETUSER", USER, "reset", "resetchannels", "on"];
    let password = format!(">{PASSWORD}");
    words.push(&password);
    words.extend(permissions);
    ok(raw, &words);
}

/// Returns user and password in the form of a URL.
pub(crate) fn user() -> String {
    format!("{USER}:{PASSWORD}")
}

fn url(port: u16) -> String {
    format!("redis://{}@127.0.0.1:{port}", user())
}

/// What semaphores and readers-writer locks need besides.
const COUNTED: &[&str] = &["+hgetall", "+hscan"];

/// Runs every step of a client once. Returns an error if the server denies a step.
async fn exercise(server: &RedisServer) -> Result<(), Error> {
    let proxy = server.proxy();
    let mut raw = server.client();
    let (lease, wait) = (HELD, LONG / 2);
    let first = connect_patiently(url(proxy.port())).await?;
    let second = connect_patiently(url(server.port())).await?;
    // One client acquires, renews and releases.
    let guard = first.lock("k").lease(lease).wait(wait).acquire().await?;
    renewed(&guard).await?;
    inspected(&first, "k").await?;
    // In a queue, one call is cancelled and one is served.
    let given_up = acquire_later(&second, "k", lease, LONG);
    let mut waiting = acquire_later(&second, "k", lease, wait);
    tokio::select! {
        refused = &mut waiting => return refused.unwrap().0.map(drop),
        () = until_queued(&mut raw, "k", 2) => {}
    }
    given_up.abort();
    guard.release().await?;
    let guard = within(LONG, waiting).await.unwrap().0?;
    renewed(&guard).await?;
    // Without a push, a queue check finds the grant.
    proxy.drop_pushes(true);
    let guard = second.lock("checked").wait(wait).acquire().await?;
    let waiting = acquire_later(&first, "checked", lease, wait);
    until_queued(&mut raw, "checked", 1).await;
    guard.release().await?;
    within(LONG, waiting).await.unwrap().0?.release().await?;
    proxy.drop_pushes(false);
    // A dead connection is tested and replaced. A short lease tests the
    // next connection, too.
    proxy.hold_requests();
    let later = acquire_later(&first, "other", ms(1_000), LONG);
    let tested = within(LONG, later).await.unwrap().0?;
    // Such a short lease may have ended.
    let _ = tested.release().await;
    // The lock disappears, and its key is then kept by `min_hold`.
    raw.cmd(&["DEL", &lock_key("k")]);
    let kept = first.lock("k").lease(lease).min_hold(ms(50));
    kept.acquire().await?.release().await?;
    // Success records need nothing else.
    let hourly = |manager: &LockManager| manager.lock("job").once_per(LONG * 60).wait(wait);
    hourly(&first).run(async |_| Ok::<_, Error>(())).await?;
    let refused = hourly(&second).run(async |_| Ok::<_, Error>(())).await;
    assert!(
        matches!(refused, Err(Error::AlreadyRan { .. })),
        "{refused:?}"
    );
    assert!(first.delete_record("job", None).await?);
    first.shutdown().await;
    second.shutdown().await;
    Ok(())
}

/// Inspects a key, and repeats the request if the machine was too slow to reply.
pub(crate) async fn inspected(manager: &LockManager, key: &str) -> Result<(), Error> {
    for _ in 0..20 {
        match manager.inspect(key).await {
            Err(error) if error.is_retryable() => {}
            seen => return seen.map(drop),
        }
    }
    panic!("{key}: no inspection got a reply");
}

/// Waits until the holder learns of a renewal. Returns an error if it learns of a loss.
pub(crate) async fn renewed(guard: &LockGuard) -> Result<(), Error> {
    let mut left = guard.remaining();
    let renewal = eventually_async(LONG, async || {
        let renewed = guard.remaining() > left;
        left = guard.remaining();
        renewed
    });
    tokio::select! {
        error = guard.lost() => Err(error),
        () = renewal => Ok(()),
    }
}

/// Returns what the server denied to the user, without repetitions.
pub(crate) fn denied(raw: &mut Resp) -> Vec<String> {
    let log = raw.cmd(&["ACL", "LOG", "128"]);
    let name = Reply::Bulk("object".into());
    let object = |entry: &Reply| {
        let fields = entry.array();
        let at = fields.iter().position(|field| *field == name);
        fields[at.unwrap() + 1].text().unwrap().to_lowercase()
    };
    let denied: BTreeSet<_> = log.array().iter().map(object).collect();
    denied.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_minimal_user_is_denied_nothing() {
    let server = RedisServer::start();
    let mut raw = server.client();
    set_user(&mut raw, &all());
    exercise(&server).await.unwrap();
    assert_eq!(denied(&mut raw), Vec::<String>::new());
}

#[test]
fn every_permission_of_the_minimal_user_is_used() {
    let check = |missing: &'static str| {
        let fewer: Vec<_> = all()
            .into_iter()
            .filter(|permission| *permission != missing)
            .collect();
        // On a busy machine a connection is replaced before its test, or a lock is lost.
        let mut rounds = 1..=5;
        let result = loop {
            let server = RedisServer::start();
            let mut raw = server.client();
            set_user(&mut raw, &fewer);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let result = runtime.expect("a runtime").block_on(exercise(&server));
            let was_slow = USEFUL.contains(&missing) && result.is_err();
            if !denied(&mut raw).is_empty() && !was_slow {
                break result;
            }
            assert!(
                rounds.next().is_some(),
                "{missing} is not needed: {result:?}"
            );
        };
        if USEFUL.contains(&missing) {
            assert!(result.is_ok(), "without {missing}: {result:?}");
        } else {
            let shown = result.expect_err(missing).to_string();
            assert!(!shown.contains(PASSWORD), "{shown}");
        }
    };
    // These mostly wait, so all run at once.
    let checks: Vec<_> = all()
        .into_iter()
        .map(|permission| std::thread::spawn(move || check(permission)))
        .collect();
    let failed = checks.into_iter().filter_map(|check| check.join().err());
    assert_eq!(failed.count(), 0, "see above");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permissions_that_are_withdrawn_later_are_an_error_and_then_a_loss() {
    let server = RedisServer::start();
    let mut raw = server.client();
    set_user(&mut raw, &all());
    let manager = connect_patiently(url(server.port())).await.unwrap();
    let guard = manager.lock("k").lease(ms(600)).acquire().await.unwrap();
    raw.cmd(&["ACL", "SETUSER", USER, "-pexpire", "-set"]);
    let error = within(LONG, guard.lost()).await;
    assert!(error.is_lost(), "{error:?}");
    let error = manager.lock("other").wait(LONG).acquire().await;
    assert_denied(&error.unwrap_err(), "permissions");
}

/// Revoking locks needs no further permission; listing them needs one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_needs_the_permission_to_scan() {
    let server = RedisServer::start();
    let mut raw = server.client();
    set_user(&mut raw, &all());
    let holder = connect_patiently(url(server.port())).await.unwrap();
    let operator = connect_patiently(url(server.port())).await.unwrap();
    let guard = holder.lock("k").acquire().await.unwrap();
    let error = operator.list("").await.unwrap_err();
    assert_message_contains(&error, &["permissions", "scan"]);
    raw.cmd(&["ACL", "SETUSER", USER, "+scan"]);
    assert_eq!(operator.list("").await.unwrap().len(), 1);
    let holds = tokio::spawn(async move { guard.lost().await });
    let unlocked = within(LONG, operator.revoke("k").wait(LONG).into_future());
    assert_eq!(unlocked.await.unwrap().outcome, RevokeOutcome::Released);
    assert!(within(LONG, holds).await.unwrap().is_lost());
}

/// Runs the steps of a client that uses semaphores and readers-writer locks.
async fn exercise_counted(server: &RedisServer) -> Result<(), Error> {
    let manager = connect_patiently(url(server.port())).await?;
    let pool = manager.semaphore("k", 1).lease(HELD).wait(LONG);
    let permit = pool.acquire().await?;
    assert!(pool.try_acquire().await?.is_none());
    inspected(&manager, "k").await?;
    let waiting = tokio::spawn(async move { pool.acquire().await });
    let is_queued = async || {
        manager
            .inspect("k")
            .await
            .is_ok_and(|k| k.queue_length == 1)
    };
    eventually_async(LONG, is_queued).await;
    permit.release().await?;
    within(LONG, waiting).await.unwrap()?.release().await?;
    let pages = manager.rw_lock("k").lease(HELD).wait(LONG);
    let reader = pages.write().await?.downgrade().await?;
    reader.release().await?;
    let revoked = pages.read().await?;
    let holds = tokio::spawn(async move { revoked.lost().await });
    manager.revoke("k").wait(LONG).into_future().await?;
    assert!(within(LONG, holds).await.unwrap().is_lost());
    manager.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn semaphores_and_readers_writer_locks_need_three_more_permissions() {
    let server = RedisServer::start();
    let mut raw = server.client();
    set_user(&mut raw, &[all(), COUNTED.to_vec()].concat());
    exercise_counted(&server).await.unwrap();
    assert_eq!(denied(&mut raw), Vec::<String>::new());
    for missing in COUNTED {
        let fewer = COUNTED.iter().filter(|permission| *permission != missing);
        set_user(&mut raw, &[all(), fewer.copied().collect()].concat());
        raw.cmd(&["ACL", "LOG", "RESET"]);
        let error = exercise_counted(&server).await.expect_err(missing);
        assert_denied(&error, "permissions");
        assert_eq!(denied(&mut raw), [&missing[1..]]);
    }
    let row = format!(
        "| semaphores and readers-writer locks | `{}` |",
        COUNTED.join(" ")
    );
    assert!(PAGE.contains(&row), "{row}");
}

/// `min_replicas` needs one more permission, and `fsync` another one. Without it waiting does not
/// help, in the queue either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_and_disks_need_the_permission_to_wait_for_them() {
    let server = primary();
    let _replica = replica_of(&server).await;
    let mut raw = server.client();
    set_user(&mut raw, &all());
    let manager = connect_patiently(url(server.port())).await.unwrap();
    let lock = || manager.lock("k").lease(HELD).wait(LONG);
    let can_fsync = !raw.cmd(&["WAITAOF", "0", "0", "1"]).is_error();
    let mut kinds = vec![(lock().min_replicas(1), "+wait")];
    if can_fsync {
        for (setting, value) in [("appendfsync", "always"), ("appendonly", "yes")] {
            ok(&mut raw, &["CONFIG", "SET", setting, value]);
        }
        kinds.push((lock().fsync(true), "+waitaof"));
    }
    for (lock, permission) in kinds {
        set_user(&mut raw, &all());
        let requested_at = Instant::now();
        let error = lock.acquire().await.unwrap_err();
        assert!(requested_at.elapsed() < LONG / 2, "waiting does not help");
        assert_denied(&error, permission);
        until_clean(&mut raw, LONG).await;
        let guard = manager.lock("k").acquire().await.unwrap();
        let queued = lock.clone();
        let waiting = tokio::spawn(async move { queued.acquire().await });
        until_queued(&mut raw, "k", 1).await;
        guard.release().await.unwrap();
        assert_denied(
            &within(LONG, waiting).await.unwrap().unwrap_err(),
            permission,
        );
        until_clean(&mut raw, LONG).await;
        set_user(&mut raw, &[all(), vec![permission]].concat());
        raw.cmd(&["ACL", "LOG", "RESET"]);
        let guard = lock.acquire().await.unwrap();
        renewed(&guard).await.unwrap();
        guard.release().await.unwrap();
        assert_eq!(denied(&mut raw), Vec::<String>::new(), "{permission}");
    }
}

/// Panics unless the error is an outage that waiting does not end, and names the missing
/// permission.
#[track_caller]
fn assert_denied(error: &Error, missing: &str) {
    assert!(error.is_unavailable() && !error.is_retryable(), "{error:?}");
    assert_message_contains(error, &[missing]);
}
