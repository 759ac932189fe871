//! Servers that ask who we are, and prove who they are: all of them, or not quite all.

use distlock::Credentials;
use distlock_tests::{RedisQuorum, RedisServer, eventually_async};

use crate::access::{NEEDED, PLACES, USEFUL, set_user, user};
use crate::credentials::{Vault, add_user, users};
use crate::kit::{LONG, connect_patiently, ms, taken_once};
use crate::quorum::members::{is_refused, lazily, until_told};
use crate::quorum::{three, until_clean, works};

const HOST: &str = "127.0.0.1";

/// The same servers, for somebody who has a name.
fn url_of(quorum: &RedisQuorum, user: &str) -> String {
    quorum.url().replacen("://", &format!("://{user}@"), 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_members_take_the_password_of_the_url() {
    let server = || RedisServer::builder().requirepass("hunter2").start();
    let quorum = RedisQuorum::of([server(), server(), server()]);
    quorum.vote("distlock");
    let url = url_of(&quorum, ":hunter2");
    let (first, second) = (
        connect_patiently(&url).await.unwrap(),
        connect_patiently(&url).await.unwrap(),
    );
    works(&quorum, &first, &second).await;
    // One of them has another one: told at connect, with its name, and with no secret.
    let odd = quorum.server(2);
    let mut raw = odd.client();
    raw.cmd(&["CONFIG", "SET", "requirepass", "another"]);
    let named = format!("{HOST}:{}", odd.port());
    is_refused(&url, &named).await;
    is_refused(&url, "WRONGPASS").await;
    let error = connect_patiently(&url).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    // Whoever does not insist has the other two, and hears of it when they are too few.
    let lazy = lazily(&url);
    let lock = lazy.lock("k").wait(LONG);
    lock.acquire().await.unwrap().release().await.unwrap();
    quorum.server(1).kill();
    until_told(&lazy, &["WRONGPASS", &named]).await;
    raw.cmd(&["CONFIG", "SET", "requirepass", "hunter2"]);
    lock.acquire().await.unwrap().release().await.unwrap();
    // A server that asks for nothing is another one.
    raw.cmd(&["CONFIG", "SET", "requirepass", ""]);
    is_refused(&url, "requirepass").await;
}

/// No more and no less than one server needs, but for INFO, which every member must answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_needs_the_same_rights_and_info() {
    let quorum = three();
    let url = url_of(&quorum, &user());
    for place in 0..3 {
        let rights = [PLACES, NEEDED, USEFUL].concat();
        set_user(&mut quorum.server(place).client(), &rights);
    }
    let (first, second) = (
        connect_patiently(&url).await.unwrap(),
        connect_patiently(&url).await.unwrap(),
    );
    works(&quorum, &first, &second).await;
    let rights = [PLACES, NEEDED, USEFUL, &["-info"]].concat();
    set_user(&mut quorum.server(1).client(), &rights);
    is_refused(&url, "the user needs INFO").await;
}

/// Without a run id a script would take its server for a restarted one, which does not vote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_denies_info_during_a_hold_votes_again_after() {
    let quorum = three();
    let allowed = [PLACES, NEEDED, USEFUL].concat();
    for index in 0..3 {
        set_user(&mut quorum.server(index).client(), &allowed);
    }
    let manager = connect_patiently(url_of(&quorum, &user())).await.unwrap();
    let lease = ms(6_000);
    let lock = manager.lock("held").lease(lease);
    let guard = lock.acquire().await.unwrap();
    let mut raw = quorum.server(1).client();
    set_user(&mut raw, &[&allowed[..], &["-info"]].concat());
    raw.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "YES"]);
    for _ in 0..2 {
        eventually_async(LONG, async || guard.remaining() < lease * 3 / 4).await;
        eventually_async(LONG, async || guard.remaining() > lease * 3 / 4).await;
    }
    set_user(&mut raw, &allowed);
    quorum.server(0).kill();
    let other = manager.lock("k").wait(LONG).acquire().await.unwrap();
    other.release().await.unwrap();
    guard.release().await.unwrap();
}

/// Each member is told who we are when it is opened, and again while its connections live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_members_are_told_the_credentials_of_the_moment() {
    let quorum = three();
    let each = || [0, 1, 2].map(|place| quorum.server(place).client());
    for mut raw in each() {
        add_user(&mut raw, "one", "first");
        add_user(&mut raw, "two", "second");
    }
    let vault = Vault::new("one", "first");
    let builder = vault.builder(&quorum.url());
    let manager = builder.credentials_every(ms(1_000));
    let manager = manager.connect().await.unwrap();
    let guard = manager.lock("held").acquire().await.unwrap();
    let are = |user: &str| each().iter_mut().all(|raw| users(raw) == [user; 2]);
    eventually_async(LONG, async || are("one")).await;
    vault.set(Ok(Credentials::new("two", "second")));
    eventually_async(LONG, async || are("two")).await;
    for mut raw in each() {
        raw.cmd(&["ACL", "DELUSER", "one"]);
        assert_eq!(users(&mut raw).len(), 2, "none was cut");
        for kind in ["normal", "pubsub"] {
            raw.cmd(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "YES"]);
        }
    }
    eventually_async(LONG, async || are("two")).await;
    taken_once(&manager, "k").await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    until_clean(&quorum).await;
}
