//! Servers that have lost their data, or may have.

use std::time::Duration;

use distlock::{Error, LockManager, Outage, Quorum};
use distlock_tests::{RedisQuorum, RedisServer, Resp, eventually_async, within};

use crate::quorum::stage::{Fault, Stage, for_each};
use crate::quorum::{connect, serves, until_clean, until_held_at, with_leases_up_to};
use crate::support::{
    HELD, LONG, acquire_later, assert_config, give_back, lock_key, ms, taken_once, tried,
};

pub(super) fn field(text: &str, place: usize) -> &str {
    text.split(' ').nth(place).unwrap()
}

/// Returns from when on a server grants, by its own clock (µs).
pub(super) fn grants_from(raw: &mut Resp) -> u64 {
    let epoch = raw.get("distlock:epoch").unwrap();
    field(&epoch, 1).parse().unwrap()
}

/// Returns the time of the server's own clock (µs).
pub(super) fn now_at(raw: &mut Resp) -> u64 {
    let script = "local t = redis.call('TIME') return t[1] * 1000000 + t[2]";
    let now = raw.cmd(&["EVAL", script, "0"]).int();
    u64::try_from(now).unwrap()
}

/// Returns the seconds until a quorum grants, from the text of an error.
#[track_caller]
fn grants_in(error: &Error) -> f64 {
    let message = error.to_string();
    let (_, behind) = message.split_once("will grant in ").expect(&message);
    assert_eq!(error.outage(), Some(Outage::NotReady), "{message}");
    field(behind, 0).parse().unwrap()
}

/// Waits until the servers are known to be back, and a try-acquire reports a wait of more than
/// `seconds`.
async fn until_grants_in(manager: &LockManager, seconds: f64) {
    eventually_async(LONG, async || {
        let error = manager.lock("k").try_acquire().await.unwrap_err();
        error.to_string().contains("will grant in ") && grants_in(&error) > seconds
    })
    .await;
}

/// One server never had the lock, and one has lost it. These two are a majority, and the holder may
/// still consider its lock valid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_unknown_to_two_of_three_servers_is_not_granted_twice() {
    for_each(&[Fault::RestartEmpty, Fault::Flush], |fault| async move {
        let longest = HELD;
        let stage = Stage::with_leases_up_to(longest, fault, &[0]).await;
        stage.quorum.server(2).kill();
        let lock = stage.subject.lock("k").lease(longest);
        let guard = lock.acquire().await.unwrap();
        // The holder cannot report its hold.
        stage.cut_off();
        stage.quorum.server(2).restart();
        stage.quorum.vote_at(2, "distlock");
        stage.strike();
        let waiting = acquire_later(&stage.other, "k", longest, LONG);
        let next = within(LONG, waiting).await.unwrap().0.unwrap();
        assert!(!guard.is_held(), "two holders at once");
        assert!(next.fencing_token() > guard.fencing_token());
        next.release().await.unwrap();
    })
    .await;
}

/// A clock that is ahead issues a token above the other clocks. Servers that lost it must not issue
/// a lower one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_data_grants_nothing_before_its_clock_reaches_all_tokens() {
    let hour = Duration::from_secs(3_600);
    let ahead = RedisServer::builder().own_clock().start();
    ahead.step_clock(true, hour);
    let quorum = RedisQuorum::of([RedisServer::start(), RedisServer::start(), ahead]);
    quorum.vote("distlock");
    let manager = connect(&quorum).await;
    let guard = manager.lock("k").acquire().await.unwrap();
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    for place in [0, 1] {
        quorum.server(place).restart();
    }
    // The wait is also known when the server with the fast clock is down.
    for is_there in [true, false] {
        if !is_there {
            quorum.server(2).kill();
        }
        until_grants_in(&manager, 3_600.0).await;
    }
    for place in [0, 1] {
        let mut raw = quorum.server(place).client();
        let from = grants_from(&mut raw);
        assert!(from > token.get(), "{from} for {token}");
        assert!(now_at(&mut raw) < token.get());
    }
}

/// Starts durable servers that count as having run for long.
fn durable() -> RedisQuorum {
    let server = || RedisServer::builder().append_only().start();
    let quorum = RedisQuorum::of([server(), server(), server()]);
    for server in quorum.servers() {
        server.client().cmd(&["SET", "distlock:epoch", "- 0"]);
    }
    quorum
}

async fn trusting(quorum: &RedisQuorum) -> LockManager {
    let terms = Quorum::new().assume_durable_servers(true);
    let builder = LockManager::builder().quorum(terms);
    builder.connect(&quorum.url()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_never_forget_grant_as_soon_as_they_are_back() {
    let quorum = durable();
    let (first, second) = (trusting(&quorum).await, trusting(&quorum).await);
    let guard = first.lock("held").acquire().await.unwrap();
    until_held_at(&quorum, 0..3, &guard).await;
    quorum.server(0).restart();
    quorum.server(1).kill();
    let value = quorum.server(0).client().get(&lock_key("held")).unwrap();
    let held = format!(" {} ", guard.fencing_token());
    assert!(value.contains(&held), "{value}");
    serves(&first).await;
    serves(&second).await;
    assert!(tried(&second.lock("held")).await.is_none());
    assert!(guard.is_held());
    guard.release().await.unwrap();
    until_clean(&quorum).await;
}

/// The setting rules out a partial loss; a total loss is detected nevertheless. Without the
/// setting, a server that lost nothing is not trusted either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_everything_or_is_not_trusted_grants_nothing() {
    for is_trusted in [true, false] {
        let quorum = durable();
        let manager = if is_trusted {
            trusting(&quorum).await
        } else {
            quorum.vote("distlock");
            connect(&quorum).await
        };
        taken_once(&manager, "k").await;
        if is_trusted {
            quorum.server(0).client().cmd(&["FLUSHALL"]);
            quorum.server(1).client().cmd(&["FLUSHALL"]);
        } else {
            quorum.server(0).restart();
            quorum.server(1).kill();
        }
        until_grants_in(&manager, 55.0).await;
    }
}

/// A server cannot know that its first boot is the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recently_started_servers_report_when_they_grant() {
    let quorum = RedisQuorum::start(3);
    let manager = connect(&quorum).await;
    for wait in [Duration::ZERO, ms(300)] {
        let error = manager.lock("k").wait(wait).acquire().await.unwrap_err();
        let left = grants_in(&error);
        // The longest lease, its grace period, and the lead of the token.
        assert!(left > 55.0 && left < 67.0, "{error}");
    }
    until_clean(&quorum).await;
    // A call that can wait longer than the quarantine is served.
    let quorum = RedisQuorum::start(3);
    let manager = with_leases_up_to(ms(1_000));
    let manager = manager.connect(&quorum.url()).await.unwrap();
    let waiting = acquire_later(&manager, "k", ms(1_000), LONG);
    let (token, _) = within(LONG, give_back(waiting)).await;
    let mut raw = quorum.server(0).client();
    assert!(token.get() >= grants_from(&mut raw));
    until_clean(&quorum).await;
}

/// Such a lock is rejected before a request is sent, so also while all servers are down.
#[tokio::test]
async fn durations_beyond_the_quarantine_are_rejected() {
    let nothing = RedisQuorum::url_at(1..=3);
    let manager = with_leases_up_to(ms(10_000))
        .connect_lazy(&nothing)
        .unwrap();
    let lock = || manager.lock("k").wait(Duration::ZERO).lease(ms(10_000));
    for (lock, names) in [
        (lock().lease(ms(10_001)), "the lease is 10.001s"),
        (lock().min_hold(ms(10_001)), "min_hold is 10.001s"),
    ] {
        let error = lock.acquire().await.unwrap_err();
        assert_config(&error, &[names, "after 10s", "`Quorum::max_lease`"]);
    }
    let replicas = lock().min_replicas(1).acquire().await.unwrap_err();
    assert_config(&replicas, &[]);
    let allowed = lock().min_hold(ms(10_000)).acquire().await;
    assert!(allowed.unwrap_err().is_unavailable());
}
