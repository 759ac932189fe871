//! Messages that any publisher may send to a client. `tests/fuzz` tests the replies and pushes of a
//! server.

use std::time::Duration;

use distlock::LockManager;
use distlock_tests::{RedisServer, Resp, eventually_async, within};

use crate::support::{Acquiring, LONG, acquire_later, connect, give_back, ms, until_queued};

const LOCK: &str = "distlock:lock:{k}";

/// Returns the channel of the only subscribed client.
fn channel(raw: &mut Resp) -> String {
    let channels = raw.cmd(&["PUBSUB", "CHANNELS", "distlock:client:*"]);
    channels.array()[0].text().unwrap().to_owned()
}

/// Queues a call behind a holder.
async fn queued(waiter: &LockManager, raw: &mut Resp) -> Acquiring {
    let waiting = acquire_later(waiter, "k", ms(5_000), LONG);
    until_queued(raw, "k", 1).await;
    waiting
}

/// Publishes a forged message, which the waiting client must ignore.
fn publish(raw: &mut Resp, channel: &str, message: &str, waiting: &Acquiring) {
    let received = raw.cmd(&["PUBLISH", channel, message]);
    assert_eq!(received.int(), 1, "no client listens");
    assert!(!waiting.is_finished(), "{message:?} was accepted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_in_a_message_grants_nothing() {
    let server = RedisServer::start();
    let mut raw = server.client();
    let waiter = connect(&server.url()).await;
    let channel = channel(&mut raw);
    let holder = connect(&server.url()).await;
    let guard = holder.lock("k").acquire().await.unwrap();
    let waiting = queued(&waiter, &mut raw).await;
    let queue = raw.cmd(&["ZRANGE", "distlock:queue:{k}", "0", "-1"]);
    let owner = queue.array()[0].text().unwrap().to_owned();
    for message in [
        String::new(),
        " ".repeat(10),
        owner.clone(),
        format!("mutex {owner} "),
        format!("mutex {owner} -1 1 1000 {LOCK}"),
        format!("mutex {owner} x 1 1000 {LOCK}"),
        format!("mutex {owner} 99999999999999999999999 1 1000 {LOCK}"),
        format!("mutex {owner} 7 -1 1000 {LOCK}"),
        format!("mutex {owner} 7 1 -1000 {LOCK}"),
        format!("mutex {owner} 7 1 1000"),
        format!("mutex {owner} 7 1 1000 another:key"),
        format!("mutex {owner}0 7 1 1000 {LOCK}"),
        format!("mutex 0{owner} 7 1 1000 {LOCK}"),
        format!("mutex x:1 7 1 1000 {LOCK}"),
        // Well formed, but granted in 1970, or by a clock far ahead.
        format!("mutex {owner} 7 1 1000 {LOCK}"),
        format!("mutex {owner} 7 99999999999999999 1000 {LOCK}"),
        "\u{fffd}\0\r\n".to_owned(),
        "x".repeat(1 << 20),
    ] {
        publish(&mut raw, &channel, &message, &waiting);
        tokio::time::sleep(ms(20)).await;
        assert!(!waiting.is_finished(), "{message:?} was accepted");
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished() && guard.is_held());
    guard.release().await.unwrap();
    within(LONG, give_back(waiting)).await;
    eventually_async(LONG, async || !raw.exists(LOCK)).await;
}

/// A user without access to the keys of distlock, which may only publish and ask for channels and
/// the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_can_only_publish_starts_no_body() {
    let server = RedisServer::start();
    let mut raw = server.client();
    raw.cmd(&[
        "ACL", "SETUSER", "forger", "reset", "on", ">forger", "&*", "+publish", "+pubsub", "+time",
    ]);
    let mut forger = server.client();
    forger.cmd(&["AUTH", "forger", "forger"]);
    let waiter = connect(&server.url()).await;
    let channel = channel(&mut forger);
    let client = channel.strip_prefix("distlock:client:").unwrap();
    let holder = connect(&server.url()).await;
    // A real grant shows the format.
    let mut monitor = server.monitor();
    let guard = holder.lock("k").acquire().await.unwrap();
    let waiting = queued(&waiter, &mut raw).await;
    guard.release().await.unwrap();
    within(LONG, give_back(waiting)).await;
    let mut published = None;
    eventually_async(LONG, async || {
        let mut lines = monitor.lines().into_iter();
        let publishes = |line: &String| line.to_ascii_lowercase().contains("\"publish\"");
        published = published.take().or_else(|| lines.find(publishes));
        published.is_some()
    })
    .await;
    let line = published.unwrap();
    let message = line.rsplit('"').nth(1).expect("a message");
    let fields: Vec<_> = message.splitn(6, ' ').collect();
    let ["mutex", owner, token, _, lease, lock] = fields[..] else {
        panic!("{message:?}");
    };
    let (of, known) = owner.split_once(':').unwrap();
    assert_eq!(of, client, "another client's grant");
    let (token, known): (u64, u64) = (token.parse().unwrap(), known.parse().unwrap());

    let guard = holder.lock("k").acquire().await.unwrap();
    let waiting = queued(&waiter, &mut raw).await;
    // A number cannot be guessed, whatever the earlier ones were.
    for guess in (0..500).chain((1..500).map(|n| known.wrapping_add(n))) {
        let time = forger.cmd(&["TIME"]);
        let part = |i: usize| time.array()[i].text().unwrap().to_owned();
        let now = format!("{}{:0>6}", part(0), part(1));
        let message = format!("mutex {client}:{guess} {} {now} {lease} {lock}", token + 1);
        publish(&mut forger, &channel, &message, &waiting);
    }
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished() && guard.is_held());
    guard.release().await.unwrap();
    within(LONG, give_back(waiting)).await;
}
