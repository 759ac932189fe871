//! Pushed grants: short until they are confirmed, and believed only while they are fresh.

use std::time::Instant;

use distlock::LockManager;
use distlock_tests::{After, RedisServer, Way, within};

use crate::kit::{
    HELD, LONG, acquire_later, connect, grant_lease, lock_key, ms, until_answered, until_clean,
    until_queued, warm,
};

/// What only a confirmation of `key` contains: a script with three keys, the lock first.
fn confirmation_of(key: &str) -> String {
    let lock = lock_key(key);
    format!("$1\r\n3\r\n${}\r\n{lock}\r\n", lock.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirmation_without_its_reply_is_repeated() {
    for after in [After::Reset, After::Silence] {
        in_some_round(async || is_confirmed_without_a_reply(after).await).await;
    }
}

/// A grant lasts for a second until it is confirmed, which is too short for a busy machine: it has some rounds.
async fn in_some_round(round: impl AsyncFn() -> bool) {
    let mut rounds = 1..=10;
    while !round().await {
        assert!(rounds.next().is_some(), "the lock was lost in every round");
    }
}

async fn is_confirmed_without_a_reply(after: After) -> bool {
    let server = RedisServer::start();
    warm(&server).await;
    let proxy = server.proxy();
    let mut raw = server.client();
    let (first, second) = (
        connect(&server.url()).await,
        connect(&server.url_via(&proxy)).await,
    );
    let guard = first.lock("k").acquire().await.unwrap();
    let waiting = acquire_later(&second, "k", HELD, LONG);
    until_queued(&mut raw, "k", 1).await;
    proxy.swallow_reply_to(&confirmation_of("k"), after);
    guard.release().await.unwrap();
    let guard = within(LONG, waiting).await.unwrap().0.unwrap();
    // The first reply is lost, and that of the repetition arrives.
    let is_confirmed = within(LONG, guard.confirmed()).await.is_ok();
    assert_eq!(proxy.stats().replies_swallowed, 1);
    // Twice what an unconfirmed grant lasts.
    let lost = tokio::time::timeout(ms(2_500), guard.lost()).await;
    let _ = guard.release().await;
    until_clean(&mut raw, LONG).await;
    is_confirmed && lost.is_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_arrives_late_is_not_believed() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let mut raw = server.client();
    let lease = ms(5_000);
    let (first, late) = (
        connect(&server.url()).await,
        connect(&server.url_via(&proxy)).await,
    );
    let other = connect(&server.url()).await;
    let guard = first.lock("k").lease(lease).acquire().await.unwrap();
    let mut late_one = acquire_later(&late, "k", lease, LONG);
    until_queued(&mut raw, "k", 1).await;
    until_answered(&late).await;
    let next = acquire_later(&other, "k", lease, LONG);
    until_queued(&mut raw, "k", 2).await;
    // The grant waits in a buffer, and nothing else comes through either.
    proxy.stop_reading(Way::Both, true);
    guard.release().await.unwrap();
    let next = within(LONG, next).await.unwrap().0.unwrap();
    proxy.stop_reading(Way::Both, false);
    // It arrives now, for a lock that another holds.
    let early = tokio::time::timeout(ms(1_500), &mut late_one).await;
    assert!(early.is_err(), "an expired grant was believed: {early:?}");
    assert!(next.is_held());
    let released = Instant::now();
    let token = next.fencing_token();
    next.release().await.unwrap();
    let (guard, acquired) = within(LONG, late_one).await.unwrap();
    let guard = guard.unwrap();
    assert!(acquired > released && guard.fencing_token() > token);
    guard.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_never_has_the_token_of_an_earlier_grant() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let mut raw = server.client();
    let lease = ms(5_000);
    let (first, slow) = (
        connect(&server.url()).await,
        connect(&server.url_via(&proxy)).await,
    );
    for pause in [ms(300), ms(900), ms(1_400), ms(2_000)] {
        let guard = first.lock("k").lease(lease).acquire().await.unwrap();
        let waiting = acquire_later(&slow, "k", lease, LONG);
        until_queued(&mut raw, "k", 1).await;
        until_answered(&slow).await;
        // Replies and pushes pile up for this long, then arrive at once.
        proxy.stop_reading(Way::ToClient, true);
        guard.release().await.unwrap();
        tokio::time::sleep(pause).await;
        proxy.stop_reading(Way::ToClient, false);
        let guard = within(LONG, waiting).await.unwrap().0.unwrap();
        let value = raw
            .get(&lock_key("k"))
            .expect("a hold has its lock in Redis");
        let token = value.split(' ').nth(2).unwrap();
        assert_eq!(
            token,
            guard.fencing_token().to_string(),
            "after {pause:?}: {value}"
        );
        guard.release().await.unwrap();
        until_clean(&mut raw, LONG).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_link_confirms_its_grants() {
    in_some_round(is_confirmed_slowly).await;
}

async fn is_confirmed_slowly() -> bool {
    let server = RedisServer::start();
    warm(&server).await;
    let proxy = server.proxy();
    let mut raw = server.client();
    let (lease, slow) = (ms(5_000), ms(200));
    let (near, far) = (
        connect(&server.url()).await,
        connect(&server.url_via(&proxy)).await,
    );
    proxy.delay(Way::ToClient, slow);
    let guard = near.lock("k").lease(lease).acquire().await.unwrap();
    let waiting = acquire_later(&far, "k", lease, LONG);
    until_queued(&mut raw, "k", 1).await;
    // Behind the answer to the ask: that one has arrived.
    until_answered(&far).await;
    guard.release().await.unwrap();
    let guard = within(LONG, waiting).await.unwrap().0.unwrap();
    let until = Instant::now() + ms(2_500);
    while Instant::now() < until {
        let left = guard.remaining();
        if !guard.is_held() {
            return false;
        }
        assert!(
            left < lease - slow,
            "{left:?} left, as if the reply had come at once"
        );
        tokio::time::sleep(ms(2)).await;
    }
    let _ = guard.release().await;
    until_clean(&mut raw, LONG).await;
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_link_is_replaced_when_it_is_lost() {
    let server = RedisServer::start();
    warm(&server).await;
    let proxy = server.proxy();
    let far = LockManager::builder()
        .url(server.url_via(&proxy))
        .connect_timeout(LONG)
        .connect()
        .await
        .unwrap();
    proxy.delay(Way::ToClient, ms(200));
    proxy.reset_connections();
    let lock = far.lock("k").lease(ms(5_000)).wait(LONG);
    let guard = within(LONG, lock.acquire()).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pushed_grant_is_as_old_as_its_message() {
    let server = RedisServer::start();
    warm(&server).await;
    let proxy = server.proxy();
    let mut raw = server.client();
    let (lease, slow) = (ms(5_000), ms(300));
    let (near, far) = (
        connect(&server.url()).await,
        connect(&server.url_via(&proxy)).await,
    );
    let guard = near.lock("k").lease(lease).acquire().await.unwrap();
    let waiting = acquire_later(&far, "k", lease, LONG);
    until_queued(&mut raw, "k", 1).await;
    // Behind the answer to the ask: that one has arrived.
    until_answered(&far).await;
    proxy.delay(Way::ToClient, slow);
    guard.release().await.unwrap();
    let guard = within(LONG, waiting).await.unwrap().0.unwrap();
    let left = guard.remaining();
    // Either believed for what is left of the grant, or confirmed first.
    let short = grant_lease(lease) - slow;
    assert!(
        left < short || left > grant_lease(lease),
        "{left:?} of {short:?} left"
    );
    assert!(left < lease - slow, "{left:?} left");
    // Late, it was lost.
    let _ = guard.release().await;
    until_clean(&mut raw, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_cancelled_is_asked_for_with_a_new_id() {
    for _ in 0..10 {
        if cancelled_and_asked_for_again().await {
            return;
        }
    }
    panic!("the silent connection was replaced each time: nothing was cancelled");
}

/// `false` if the silence lasted so long that the connection was replaced: then nothing is cancelled, and
/// the same id asks again.
async fn cancelled_and_asked_for_again() -> bool {
    let server = RedisServer::start();
    warm(&server).await;
    let proxy = server.proxy();
    let mut raw = server.client();
    let lease = ms(5_000);
    let (near, far) = (
        connect(&server.url()).await,
        connect(&server.url_via(&proxy)).await,
    );
    let guard = near.lock("k").lease(lease).acquire().await.unwrap();
    let waiting = acquire_later(&far, "k", lease, LONG);
    until_queued(&mut raw, "k", 1).await;
    // Behind the answer to the ask: that one has arrived.
    until_answered(&far).await;
    let owner_of = |value: Option<String>| {
        let value = value.expect("the lock is taken");
        value.split(' ').nth(1).unwrap().to_owned()
    };
    let connections = proxy.stats().accepted;
    // The message comes when too little of the grant is left, and is found to be out of date.
    proxy.stop_reading(Way::ToClient, true);
    guard.release().await.unwrap();
    let granted = owner_of(raw.get(&lock_key("k")));
    tokio::time::sleep(ms(700)).await;
    raw.cmd(&["DEL", &lock_key("k")]);
    proxy.stop_reading(Way::ToClient, false);
    let guard = within(LONG, waiting).await.unwrap().0.unwrap();
    if proxy.stats().accepted > connections {
        return false;
    }
    // Behind everything that was still under way.
    let state = far.inspect("k").await.unwrap();
    assert!(
        state.holders().len() == 1,
        "the cancel of an earlier id freed the lock"
    );
    assert_ne!(
        owner_of(raw.get(&lock_key("k"))),
        granted,
        "a cancelled id asked again"
    );
    assert!(guard.is_held());
    guard.release().await.unwrap();
    until_clean(&mut raw, LONG).await;
    true
}

/// A body that runs under one grant is not told that a later one is its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirmation_of_another_grant_is_a_loss() {
    let server = RedisServer::start();
    warm(&server).await;
    let proxy = server.proxy();
    let mut raw = server.client();
    // Renewals, which compare tokens too, are ten seconds apart.
    let (lease, before_renewals) = (ms(60_000), ms(8_000));
    let (near, far) = (
        connect(&server.url()).await,
        connect(&server.url_via(&proxy)).await,
    );
    let guard = near.lock("k").lease(lease).acquire().await.unwrap();
    let waiting = acquire_later(&far, "k", lease, LONG);
    until_queued(&mut raw, "k", 1).await;
    // Behind the answer to the ask: that one has arrived.
    until_answered(&far).await;
    // The grant arrives, and its confirmation waits on its way.
    proxy.stop_reading(Way::ToServer, true);
    guard.release().await.unwrap();
    let guard = within(LONG, waiting).await.unwrap().0.unwrap();
    // Meanwhile the server grants again: the same owner, whose ask came late, has the next token.
    let token = guard.fencing_token();
    let value = raw.get(&lock_key("k")).expect("it is granted");
    let next = value.replacen(&token.to_string(), &(token.get() + 1).to_string(), 1);
    assert_ne!(value, next);
    raw.cmd(&["SET", &lock_key("k"), &next, "PX", "60000"]);
    proxy.stop_reading(Way::ToServer, false);
    let (error, confirmed) = within(before_renewals, async {
        tokio::join!(guard.lost(), guard.confirmed())
    })
    .await;
    assert!(error.is_lost(), "{error:?}");
    assert!(confirmed.unwrap_err().is_lost());
    // Nobody runs under the later grant: it is given back before its lease ends.
    until_clean(&mut raw, LONG).await;
}
