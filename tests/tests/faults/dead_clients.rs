//! The waiters of a frozen or dead process do not hold up others, nor do its holds once they have
//! expired.

use std::any::Any;
use std::time::{Duration, Instant};

use distlock::{Error, LockGuard, LockManager};
use distlock_tests::{Middleman, RedisServer, Resp, eventually_async, within};
use tokio::task::JoinHandle;

use crate::child::{child, second_key};
use crate::support::{
    HELD, LONG, SLACK, acquire_later, acquired, connect, give_back, grace, grant_lease, hold,
    leftovers, lock_key, ms, queue_key, until_clean, until_listening, until_queued,
};

/// Long, so that it is noticed if it is used instead of the grant's lease.
const LEASE: Duration = ms(10_000);

/// Releases a lock that a client that is gone waits for with `gone` calls, and then a live one. The
/// live client acquires it after one grant to the other.
async fn costs_a_grant(
    guard: LockGuard,
    live: &LockManager,
    gone: usize,
    raw: &mut Resp,
) -> LockGuard {
    let waiting = acquire_later(live, "k", LEASE, LONG);
    until_queued(raw, "k", gone as i64 + 1).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    assert!(
        raw.exists(&lock_key("k")),
        "the lock went to the head of the queue"
    );
    let guard = acquired(waiting).await;
    let delay = released.elapsed();
    let bound = grant_lease(LEASE) + grace(grant_lease(LEASE)) + ms(1_000) + SLACK;
    assert!(delay <= bound, "delayed by {delay:?}, not {bound:?}");
    guard
}

/// Freezes a process with 100 waiters that are queued before a live one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_process_with_a_hundred_waiters_costs_a_grant() {
    const FROZEN: usize = 100;
    let server = RedisServer::start();
    let mut raw = server.client();
    // PUBLISH counts this subscriber, whichever client a message is for.
    let mut listener = server.client();
    listener.cmd(&["PSUBSCRIBE", "*"]);
    let (holder, live) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = hold(&holder, "k", LEASE).await;
    let mut frozen = child("queue", &server.url(), "k", LEASE, FROZEN);
    until_queued(&mut raw, "k", FROZEN as i64).await;
    frozen.stop_process();
    let guard = costs_a_grant(guard, &live, FROZEN, &mut raw).await;
    frozen.cont_process();
    until_queued(&mut raw, "k", FROZEN as i64).await;
    guard.release().await.unwrap();
    let mut last = 0;
    for _ in 0..FROZEN {
        let token: u64 = frozen.expect_line("turn", LONG).parse().unwrap();
        assert_ne!(token, last);
        last = token;
    }
    frozen.expect_line("done", LONG);
    assert!(frozen.wait(LONG).success());
    assert_eq!(leftovers(&mut raw), Vec::<String>::new());
}

/// The server keeps an old connection of a killed process, which therefore counts as alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_connection_of_a_killed_process_costs_a_grant() {
    const KILLED: usize = 20;
    let server = RedisServer::start();
    let (proxy, mut raw) = (server.proxy(), server.client());
    let (holder, live) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = hold(&holder, "k", LEASE).await;
    let killed = child("queue", &server.url_via(&proxy), "k", LEASE, KILLED);
    until_queued(&mut raw, "k", KILLED as i64).await;
    let owners = raw.cmd(&["ZRANGE", &queue_key("k"), "0", "0"]);
    let (client, _) = owners.array()[0].text().unwrap().split_once(':').unwrap();
    let channel = format!("distlock:client:{client}");
    let mut until_subscribed = async |count| {
        let numsub = ["PUBSUB", "NUMSUB", &*channel];
        eventually_async(LONG, async || raw.cmd(&numsub).array()[1].int() == count).await;
    };
    // The process connects again, and the server does not see its old connection end.
    proxy.hold_requests();
    proxy.reset_clients();
    until_subscribed(2).await;
    killed.kill();
    until_subscribed(1).await;
    let guard = costs_a_grant(guard, &live, KILLED, &mut raw).await;
    guard.release().await.unwrap();
    assert_eq!(leftovers(&mut raw), Vec::<String>::new());
}

/// The server cannot see that the waiters behind a proxy are dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_behind_a_proxy_costs_a_grant() {
    const KILLED: usize = 20;
    let server = RedisServer::start();
    let (proxy, mut raw) = (Middleman::before(&[&server]), server.client());
    let (holder, live) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = hold(&holder, "k", LEASE).await;
    let killed = child("queue", &proxy.url(), "k", LEASE, KILLED);
    until_queued(&mut raw, "k", KILLED as i64).await;
    killed.kill();
    let guard = costs_a_grant(guard, &live, KILLED, &mut raw).await;
    guard.release().await.unwrap();
    assert_eq!(leftovers(&mut raw), Vec::<String>::new());
}

/// The killed waiters had a `wait` of a minute. Another client gets a place in the queue earlier.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_leaves_no_queue_that_is_full_of_its_waiters() {
    const KILLED: usize = 250;
    let server = RedisServer::start();
    let mut raw = server.client();
    let small = LockManager::builder();
    let small = small.max_waiters(KILLED as u32 + 1);
    let (holder, live) = (
        connect(&server.url()).await,
        small.connect(&server.url()).await.unwrap(),
    );
    let guard = hold(&holder, "k", LEASE).await;
    // A live waiter is queued before all of them.
    let patient = acquire_later(&holder, "k", LEASE, LONG);
    until_queued(&mut raw, "k", 1).await;
    let killed = child("queue", &server.url(), "k", LEASE, KILLED);
    until_queued(&mut raw, "k", KILLED as i64 + 1).await;
    let error = live.lock("k").wait(LONG).acquire().await.unwrap_err();
    assert!(error.is_busy(), "all of them live: {error:?}");
    let last = raw.cmd(&["ZRANGE", &queue_key("k"), "-1", "-1"]);
    let last = last.array()[0].text().unwrap();
    let dead = last.split(':').next().unwrap().to_owned();
    killed.kill();
    // The server has noticed the lost connection.
    until_listening(&mut raw, 2, LONG).await;
    let waiting = [(); 2].map(|()| acquire_later(&live, "k", LEASE, LONG));
    eventually_async(LONG, async || {
        assert!(
            !waiting.iter().any(|waiting| waiting.is_finished()),
            "{waiting:?}"
        );
        let queue = raw.cmd(&["ZRANGE", &queue_key("k"), "0", "-1"]);
        let owners = queue.array().iter().filter_map(|owner| owner.text());
        owners.filter(|owner| !owner.starts_with(&dead)).count() == 3
    })
    .await;
    guard.release().await.unwrap();
    within(LONG, give_back(patient)).await;
    // Either of them may have been queued first.
    let [first, second] = waiting.map(give_back);
    within(LONG, async { tokio::join!(first, second) }).await;
    assert_eq!(leftovers(&mut raw), Vec::<String>::new());
}

/// One call removes a bounded number of dead waiters. A queue check then continues at once, not
/// half a second later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_queue_check_skips_ten_thousand_dead_waiters() {
    const FILL: &str = "local now = redis.call('TIME')[1] * 1000000
        for i = 1, 10000 do
            local owner = string.format('%x:%d', 0xdead0000 + i, i)
            redis.call('ZADD', KEYS[1], i, owner)
            redis.call('HSET', KEYS[2], owner, string.format('%.0f 1250 mutex 1 1 dead', now + 3600e6))
        end";
    let server = RedisServer::start();
    let mut raw = server.client();
    // PUBLISH counts this subscriber, whichever client a message is for.
    let mut listener = server.client();
    listener.cmd(&["PSUBSCRIBE", "*"]);
    // The holder does not exist, so only the waiter drives the queue.
    let holder = format!("2 {}:1 1 60000 1 gone", "a".repeat(32));
    raw.cmd(&["SET", &lock_key("k"), &holder, "PX", "60000"]);
    let live = connect(&server.url()).await;
    let waiting = acquire_later(&live, "k", ms(10_000), 6 * LONG);
    until_queued(&mut raw, "k", 1).await;
    // The dead waiters are queued before it, and no connection is subscribed for them.
    let entries = queue_key("k").replace(":queue:", ":entry:");
    raw.cmd(&["EVAL", FILL, "2", &queue_key("k"), &entries]);
    until_queued(&mut raw, "k", 10_001).await;
    // A hundred removals every half second would take most of a minute.
    raw.cmd(&["DEL", &lock_key("k")]);
    acquired(waiting).await.release().await.unwrap();
    until_queued(&mut raw, "k", 0).await;
}

/// The dead writer is removed while the lock is held, long before its `wait` would end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_writer_does_not_keep_readers_out() {
    let server = RedisServer::start();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let reading = first.rw_lock("k").lease(HELD).read().await.unwrap();
    let writer = child("write", &server.url(), "k", HELD, 0);
    let is_queued = async || first.inspect("k").await.unwrap().queue_length == 1;
    eventually_async(LONG, is_queued).await;
    writer.kill();
    let read = second.rw_lock("k").wait(LONG / 2).read().await.unwrap();
    assert!(reading.is_held());
    assert_eq!(read.fencing_token(), reading.fencing_token());
}

/// A call of another process.
#[derive(Clone, Copy, Debug)]
enum Call {
    Mutex,
    Read,
    Write,
    /// Of three permits.
    Permits(u32),
}

impl Call {
    async fn acquire(self, manager: &LockManager, key: &str) -> Result<Box<dyn Any + Send>, Error> {
        Ok(match self {
            Call::Mutex => Box::new(manager.lock(key).wait(LONG).acquire().await?),
            Call::Read => Box::new(manager.rw_lock(key).wait(LONG).read().await?),
            Call::Write => Box::new(manager.rw_lock(key).wait(LONG).write().await?),
            Call::Permits(weight) => {
                let semaphore = manager.semaphore(key, 3).wait(LONG);
                Box::new(semaphore.acquire_many(weight).await?)
            }
        })
    }

    /// Acquires in a task that returns when it has acquired, and returns once it is the last of
    /// `count` waiters.
    async fn queue(self, manager: &LockManager, key: &str, count: u64) -> Queued {
        let (caller, name) = (manager.clone(), key.to_owned());
        let waiting = tokio::spawn(async move {
            let hold = self.acquire(&caller, &name).await.unwrap();
            (hold, Instant::now())
        });
        let is_queued = async || manager.inspect(key).await.unwrap().queue_length == count;
        eventually_async(LONG, is_queued).await;
        waiting
    }
}

type Queued = JoinHandle<(Box<dyn Any + Send>, Instant)>;

/// Returns the earliest and the latest time at which the only hold of a key expires, if it is no
/// longer renewed.
async fn expiry(manager: &LockManager, key: &str, lease: Duration) -> [Instant; 2] {
    let before = Instant::now();
    let state = manager.inspect(key).await.unwrap();
    let (expires_in, after) = (state.expires_in.unwrap(), Instant::now());
    assert_eq!(state.holders.len(), 1, "{state:?}");
    assert!(expires_in <= lease + grace(lease), "{state:?}");
    [before + expires_in - ms(20), after + expires_in]
}

/// A dead holder keeps what it has for its lease and the grace period. Then the head of the queue
/// is granted, and no waiter behind it. A key without waiters can then be acquired as another kind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_holds_goes_to_the_head_of_the_queue() {
    // What the process holds, the head of the queue, the waiter behind it, a call of another kind.
    let rows = [
        // The waiter behind would fit even before the process is killed.
        ("permits", [Call::Permits(3), Call::Permits(1)], Call::Mutex),
        ("read", [Call::Write, Call::Read], Call::Permits(1)),
        ("write", [Call::Read, Call::Write], Call::Mutex),
        ("several", [Call::Mutex, Call::Mutex], Call::Read),
    ];
    let server = RedisServer::start();
    let (lease, live) = (HELD, connect(&server.url()).await);
    let mut held = Vec::new();
    for (role, [head, behind], other) in rows {
        let holder = child(role, &server.url(), role, lease, 0);
        holder.expect_line("held", LONG);
        let head = head.queue(&live, role, 1).await;
        let behind = behind.queue(&live, role, 2).await;
        held.push((holder, role, head, behind, other));
    }
    let killed = held.into_iter().map(|(holder, role, head, behind, other)| {
        holder.kill();
        (role, head, behind, other)
    });
    let killed: Vec<_> = killed.collect();
    let ends = killed.into_iter().map(|(role, head, behind, other)| {
        let live = live.clone();
        async move {
            let second = second_key(role);
            let (first, alone) =
                tokio::join!(expiry(&live, role, lease), expiry(&live, &second, lease));
            let assert_after = |acquired: Instant, [earliest, latest]: [Instant; 2]| {
                assert!(
                    acquired >= earliest,
                    "{role}: {:?} early",
                    earliest - acquired
                );
                // A queue check runs every half second; the rest is for a loaded machine.
                let late = acquired.saturating_duration_since(latest);
                assert!(late <= ms(1_000) + SLACK, "{role}: {late:?} late");
            };
            let taken_over = async {
                let (hold, acquired) = within(LONG, head).await.unwrap();
                assert_after(acquired, first);
                assert!(!behind.is_finished(), "{role}: the head was passed");
                drop(hold);
                within(LONG, behind).await.unwrap();
            };
            let reused =
                eventually_async(LONG, async || match other.acquire(&live, &second).await {
                    Ok(_) => true,
                    Err(Error::WrongKind { .. }) => false,
                    Err(error) => panic!("{role}: {error:?}"),
                });
            let reused = async {
                reused.await;
                assert_after(Instant::now(), alone);
            };
            tokio::join!(taken_over, reused);
        }
    });
    futures::future::join_all(ends).await;
    until_clean(&mut server.client(), LONG).await;
}
