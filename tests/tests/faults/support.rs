//! Helpers that the tests of this binary share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::__inside::runtime_connections_at_once;
use distlock::{
    BodyState, Error, FencingToken, HeldLock, Lock, LockGuard, LockManager, LossReason,
};
pub(crate) use distlock_tests::ms;
use distlock_tests::{Proxy, RedisServer, Reply, Resp, equal, eventually_async, within};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Timeout for everything that must happen eventually, on a loaded machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Allowance on a bound for a loaded machine.
pub(crate) const SLACK: Duration = Duration::from_secs(4);

/// A lease that a loaded machine renews in time. Renewals are sent every 1.7 s, and still succeed
/// when they are 3.3 s late.
pub(crate) const HELD: Duration = Duration::from_secs(5);

/// Returns how much longer than the lease the server keeps a lock.
pub(crate) fn grace(lease: Duration) -> Duration {
    (lease / 10).clamp(ms(250), ms(10_000))
}

/// Returns the lease of a grant that is not confirmed.
pub(crate) fn grant_lease(lease: Duration) -> Duration {
    lease.min(ms(1_000))
}

pub(crate) fn lock_key(key: &str) -> String {
    format!("distlock:lock:{{{key}}}")
}

pub(crate) fn fence_key(key: &str) -> String {
    format!("distlock:fence:{{{key}}}")
}

pub(crate) fn queue_key(key: &str) -> String {
    format!("distlock:queue:{{{key}}}")
}

/// Connects a manager that opens runtime connections for its callers from the first call on.
pub(crate) async fn connect(url: &str) -> LockManager {
    let builder = runtime_connections_at_once(LockManager::builder().connect_timeout(LONG));
    builder.connect(url).await.expect("the server is up")
}

/// Connects a manager with default settings, except for a long connect timeout.
pub(crate) async fn connect_patiently(url: impl AsRef<str>) -> Result<LockManager, Error> {
    let builder = LockManager::builder();
    builder.connect_timeout(LONG).connect(url.as_ref()).await
}

/// Starts a server, and returns it with a connection and a manager.
pub(crate) async fn single() -> (RedisServer, Resp, LockManager) {
    let server = RedisServer::start();
    let (raw, manager) = (server.client(), connect(&server.url()).await);
    (server, raw, manager)
}

/// Starts a server and a proxy in front of it; the manager connects through the proxy.
pub(crate) async fn proxied() -> (RedisServer, Proxy, LockManager) {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let manager = connect(&server.url_via(&proxy)).await;
    (server, proxy, manager)
}

/// Acquires and releases in a task of `on`, more often than opening a runtime connection takes.
pub(crate) async fn call_often(on: &Handle, manager: &LockManager, key: &str) {
    let lock = manager.lock(key).wait(LONG);
    let calls = on.spawn(async move {
        for _ in 0..40 {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
    });
    calls.await.unwrap();
}

/// Waits until calls succeed.
pub(crate) async fn until_served(manager: &LockManager) {
    let served = async || manager.lock("k").wait(ms(500)).acquire().await.is_ok();
    eventually_async(LONG, served).await;
}

/// Waits until `count` clients are subscribed at a server.
pub(crate) async fn until_listening(raw: &mut Resp, count: usize, timeout: Duration) {
    let channels = ["PUBSUB", "CHANNELS", "distlock:client:*"];
    let listening = async || equal(raw.cmd(&channels).array().len(), count);
    eventually_async(timeout, listening).await;
}

/// Acquires with this lease, however slow the machine is. Panics if it fails.
pub(crate) async fn hold(manager: &LockManager, key: &str, lease: Duration) -> LockGuard {
    let lock = manager.lock(key).lease(lease).wait(LONG);
    lock.acquire().await.unwrap()
}

/// Loads every script into the server, so that the next use of each is one command.
pub(crate) async fn warm(server: &RedisServer) {
    let mut raw = server.client();
    let (first, second) = (connect(&server.url()).await, connect(&server.url()).await);
    let lease = HELD;
    let guard = first.lock("warm").lease(lease).acquire().await.unwrap();
    expiry_after_renewal(&mut raw, "warm").await;
    let waiting = acquire_later(&second, "warm", lease, LONG);
    until_queued(&mut raw, "warm", 1).await;
    // The waiter confirms its grant if it is notified; otherwise a queue check finds the grant.
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().0.unwrap();
    until_queued(&mut raw, "warm", 0).await;
    let _ = guard.release().await;
    first.shutdown().await;
    second.shutdown().await;
    until_clean(&mut raw, LONG).await;
    raw.cmd(&["DEL", "distlock:fence:{warm}"]);
}

/// Waits until exactly `count` calls are queued.
pub(crate) async fn until_queued(raw: &mut Resp, key: &str, count: i64) {
    let queue = queue_key(key);
    eventually_async(LONG, async || {
        equal(raw.cmd(&["ZCARD", &queue]).int(), count)
    })
    .await;
}

/// Waits until the server has only fences left, no lock and no queue.
pub(crate) async fn until_clean(raw: &mut Resp, within: Duration) {
    eventually_async(within, async || equal(leftovers(raw), Vec::<String>::new())).await;
}

/// Returns every key on the server that is not a fence.
pub(crate) fn leftovers(raw: &mut Resp) -> Vec<String> {
    let mut keys = raw.keys("*");
    keys.retain(|key| !key.contains(":fence:"));
    keys
}

/// Executes a command that the server must accept.
#[track_caller]
pub(crate) fn ok(raw: &mut Resp, words: &[&str]) {
    assert_eq!(raw.cmd(words), Reply::Status("OK".into()), "{words:?}");
}

/// Closes all connections of a type (`normal`, `pubsub`) except this one. Returns how many.
pub(crate) fn kill(raw: &mut Resp, kind: &str) -> i64 {
    raw.cmd(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])
        .int()
}

/// Returns how many connections the server has accepted since it started.
pub(crate) fn accepted(raw: &mut Resp) -> u64 {
    let accepted = raw.info_field("total_connections_received");
    accepted.parse().expect("a number")
}

/// Returns how many connections the server has.
pub(crate) fn connections(raw: &mut Resp) -> usize {
    let list = raw.cmd(&["CLIENT", "LIST"]);
    list.text().expect("a list").lines().count()
}

/// Returns how many scripts the server has executed.
pub(crate) fn scripts(raw: &mut Resp) -> u64 {
    calls(raw, "eval") + calls(raw, "evalsha")
}

/// Returns how often the server has executed a command.
pub(crate) fn calls(raw: &mut Resp, command: &str) -> u64 {
    statistic(raw, command, "calls=")
}

/// Returns how many calls of a command the server has rejected without executing them.
pub(crate) fn rejected(raw: &mut Resp, command: &str) -> u64 {
    statistic(raw, command, "rejected_calls=")
}

/// Returns how many executed calls of a command ended with an error.
pub(crate) fn failed(raw: &mut Resp, command: &str) -> u64 {
    statistic(raw, command, "failed_calls=")
}

fn statistic(raw: &mut Resp, command: &str, field: &str) -> u64 {
    let stats = raw.cmd(&["INFO", "commandstats"]);
    let prefix = format!("cmdstat_{command}:");
    let mut lines = stats.text().expect("statistics").lines();
    let fields = lines.find_map(|line| line.strip_prefix(&prefix));
    let mut fields = fields.unwrap_or_default().split(',');
    let number = fields.find_map(|known| known.strip_prefix(field));
    number.map_or(0, |number| number.parse().expect("a number"))
}

pub(crate) async fn taken_once(manager: &LockManager, key: &str) {
    take(manager.lock(key)).await;
}

/// Acquires a lock and releases it.
pub(crate) async fn take(lock: Lock) {
    lock.acquire().await.unwrap().release().await.unwrap();
}

/// Tries to acquire. An attempt that the store does not answer is repeated, because it shows
/// nothing about the lock. Panics if the store refuses, or is unavailable for 20 attempts.
pub(crate) async fn tried(lock: &Lock) -> Option<LockGuard> {
    for _ in 0..20 {
        match lock.try_acquire().await {
            Err(error) if error.is_unavailable() => {}
            answered => return answered.unwrap(),
        }
    }
    panic!("{lock:?}: no try was answered");
}

/// A call that acquires in its own task. Returns the outcome and when it came.
pub(crate) type Acquiring = JoinHandle<(Result<LockGuard, Error>, Instant)>;

/// Acquires in a separate task, so that the caller can go on and cause a fault.
pub(crate) fn acquire_later(
    manager: &LockManager,
    key: &str,
    lease: Duration,
    wait: Duration,
) -> Acquiring {
    let lock = manager.lock(key).lease(lease).wait(wait);
    tokio::spawn(async move { (lock.acquire().await, Instant::now()) })
}

/// Releases as soon as the call has acquired. Returns its token and when it acquired.
pub(crate) async fn give_back(acquiring: Acquiring) -> (FencingToken, Instant) {
    let (guard, acquired) = acquiring.await.unwrap();
    let guard = guard.unwrap();
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    (token, acquired)
}

/// Waits until a call in its own task has acquired. Panics if the call fails.
#[track_caller]
pub(crate) fn acquired(acquiring: Acquiring) -> impl Future<Output = LockGuard> {
    let acquired = within(LONG, acquiring);
    async { acquired.await.unwrap().0.unwrap() }
}

/// Releases. The waiter then acquires with a higher token and releases too, which leaves nothing on
/// the server.
pub(crate) async fn hand_on(guard: LockGuard, waiting: Acquiring, raw: &mut Resp) {
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let next = acquired(waiting).await;
    assert!(next.fencing_token() > token);
    next.release().await.unwrap();
    until_clean(raw, LONG).await;
}

/// Returns why a hold was lost, and whether its body had completed. Panics if the error is not
/// `Lost`.
#[track_caller]
pub(crate) fn loss(error: &Error) -> (&LossReason, bool) {
    match error {
        Error::Lost { reason, body, .. } => (reason, *body == BodyState::Completed),
        other => panic!("{other:?}"),
    }
}

/// Panics unless the error is a misconfiguration and its text contains all `parts`.
#[track_caller]
pub(crate) fn assert_config(error: &Error, parts: &[&str]) {
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    assert!(!error.is_retryable(), "{error:?}");
    assert_message_contains(error, parts);
}

/// Panics unless the text of an error contains all `parts`, and no password of these tests.
#[track_caller]
pub(crate) fn assert_message_contains(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing: {text}");
    }
    let shown = format!("{text} {error:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

/// Panics unless the server has the lock of this guard, with its token.
#[track_caller]
pub(crate) fn assert_stored(raw: &mut Resp, guard: &LockGuard) {
    let value = raw.get(&lock_key(guard.key())).expect("a lock");
    let token = guard.fencing_token().to_string();
    assert_eq!(value.split(' ').nth(2), Some(&*token), "{value}");
}

/// Returns when a key expires, by the server's clock in ms, to within one or two. Negative without
/// a key. Redis 6.2 has no `PEXPIRETIME`.
pub(crate) fn expires(raw: &mut Resp, key: &str) -> i64 {
    let script = "local left, time = redis.call('PTTL', KEYS[1]), redis.call('TIME') \
                  if left < 0 then return left end return time[1] * 1000 + math.floor(time[2] / 1000) + left";
    raw.cmd(&["EVAL", script, "1", key]).int()
}

/// Waits for a renewal, so that the next one is a third of the lease away. Returns an instant
/// before which the server certainly keeps the lock.
pub(crate) async fn expiry_after_renewal(raw: &mut Resp, key: &str) -> Instant {
    let lock = lock_key(key);
    let mut last = expires(raw, &lock);
    eventually_async(LONG, async || {
        let now_expires = expires(raw, &lock);
        // A renewal adds more than the clock's rounding.
        let renewed = now_expires > last + 20 && last > 0;
        last = now_expires;
        renewed
    })
    .await;
    // Read before the command, because the remaining time counts from a later instant.
    let requested_at = Instant::now();
    requested_at + ms(u64::try_from(raw.pttl(&lock)).expect("a lock has a TTL"))
}

/// Waits until the manager has received every reply to its earlier commands.
pub(crate) async fn until_answered(manager: &LockManager) {
    eventually_async(LONG, async || manager.inspect("k").await.is_ok()).await;
}

/// Waits for two successful renewals of a hold, so that it does not live on the rest of its lease
/// only. Panics if the lock is lost.
pub(crate) async fn until_renewed_twice(guard: &LockGuard) {
    for _ in 0..2 {
        crate::access::renewed(guard).await.expect("it is held on");
    }
}

/// Returns the latest instant until which a holder considers its lock valid. Unlike the instant at
/// which a task learns of a loss, it does not depend on how busy the machine is.
pub(crate) fn believed_until(guard: &LockGuard) -> Instant {
    let now = Instant::now();
    now + guard.remaining()
}

/// Panics when two bodies run at once, or a token does not rise.
#[derive(Debug, Default)]
pub(crate) struct Exclusion {
    inside: AtomicBool,
    last: AtomicU64,
    turns: AtomicU64,
}

impl Exclusion {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    #[track_caller]
    pub(crate) fn enter(&self, token: FencingToken) -> Inside<'_> {
        assert!(
            !self.inside.swap(true, Ordering::SeqCst),
            "two bodies run at once"
        );
        let last = self.last.swap(token.get(), Ordering::SeqCst);
        assert!(last < token.get(), "token {token} after {last}");
        self.turns.fetch_add(1, Ordering::SeqCst);
        Inside(self)
    }

    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::SeqCst)
    }
}

/// A running body.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a Exclusion);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.store(false, Ordering::SeqCst);
    }
}

/// Panics if a body still considers its lock valid, but the server does not have that hold.
#[track_caller]
pub(crate) fn assert_in_redis(server: &RedisServer, held: &HeldLock) {
    let value = server.client().get(&lock_key(held.key()));
    // A lost hold promises nothing.
    if !held.is_held() {
        return;
    }
    let stored = value.as_deref().and_then(|value| value.split(' ').nth(2));
    let token = held.fencing_token().to_string();
    assert_eq!(stored, Some(&*token), "{held:?} runs, there is {value:?}");
}
