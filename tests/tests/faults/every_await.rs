//! Every public operation of every kind ends within its bound, whatever the server does.

use std::time::Duration;

use distlock::{
    Error, LockGuard, LockManager, LockState, MultiLockGuard, RwLockReadGuard, RwLockWriteGuard,
    SemaphorePermit, distributed_lock,
};
use distlock_tests::{Directions, Proxy, RedisServer, within};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all, pending, ready};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{LONG, SLACK, connect, ms};

const LEASE: Duration = ms(2_000);
const COMMAND_TIMEOUT: Duration = ms(200);
const RELEASE: Duration = ms(600);
const WAIT: Duration = ms(1_000);
/// The wait of calls that are queued before the fault.
const LONG_WAIT: Duration = ms(3_000);
/// The timeout of each command for operators, and of connecting.
const TIMEOUT: Duration = ms(1_000);
const SHUTDOWN: Duration = ms(6_000);

/// Later than every deadline.
const LATE: Duration = ms(3_000);

macro_rules! faults {
    ($proxy:ident: $($name:literal => $begin:expr;)*) => { [$(($name, |$proxy| $begin)),*] };
}

type Fault = (&'static str, fn(&Proxy));

const FAULTS: [Fault; 8] = faults! { proxy:
    "no answer" => proxy.black_hole(true);
    "lost requests" => proxy.drop_data(Directions::ToServer, true);
    "lost replies" => proxy.drop_data(Directions::ToClient, true);
    "late requests" => proxy.delay(Directions::ToServer, LATE);
    "late replies" => proxy.delay(Directions::ToClient, LATE);
    "cut connections" => { proxy.refuse_connections(true); let _ = proxy.reset_connections(); };
    "error replies" => proxy.replace_replies("-LOADING the dataset is being loaded\r\n");
    "refused commands" => proxy.replace_replies("-NOPERM no permission for the command\r\n");
};

/// True for an operation that returns an error under every fault. Others may also succeed, because
/// they do not need a reply.
type Fails = bool;

/// A kind of lock with guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mutex,
    Read,
    Write,
    Permit,
    Several,
}

enum Guard {
    Mutex(LockGuard),
    Read(RwLockReadGuard),
    Write(RwLockWriteGuard),
    Permit(SemaphorePermit),
    Several(MultiLockGuard),
}

/// Evaluates an expression with the guard of any kind.
macro_rules! of_guard {
    ($self:expr, $guard:ident => $expression:expr) => {
        match $self {
            Guard::Mutex($guard) => $expression,
            Guard::Read($guard) => $expression,
            Guard::Write($guard) => $expression,
            Guard::Permit($guard) => $expression,
            Guard::Several($guard) => $expression,
        }
    };
}

impl Kind {
    async fn acquire(self, at: &At, wait: Duration) -> Result<Guard, Error> {
        Ok(match self {
            Kind::Mutex => Guard::Mutex(at.mutex().wait(wait).acquire().await?),
            Kind::Read => Guard::Read(at.rw_lock().wait(wait).read().await?),
            Kind::Write => Guard::Write(at.rw_lock().wait(wait).write().await?),
            Kind::Permit => Guard::Permit(at.semaphore().wait(wait).acquire().await?),
            Kind::Several => Guard::Several(at.several().wait(wait).acquire().await?),
        })
    }

    async fn try_acquire(self, at: &At) -> Result<(), Error> {
        match self {
            Kind::Mutex => at.mutex().try_acquire().await.map(drop),
            Kind::Read => at.rw_lock().try_read().await.map(drop),
            Kind::Write => at.rw_lock().try_write().await.map(drop),
            Kind::Permit => at.semaphore().try_acquire().await.map(drop),
            Kind::Several => at.several().try_acquire().await.map(drop),
        }
    }

    /// Returns a hold of the near manager, and a call of the far one that is queued behind it.
    async fn contend(self, at: &At) -> (Guard, JoinHandle<Result<Guard, Error>>) {
        let near = At {
            far: at.near.clone(),
            ..at.clone()
        };
        let blocking = if self == Kind::Read {
            Kind::Write
        } else {
            self
        };
        let held = blocking.acquire(&near, LONG).await.unwrap();
        let waiting = tokio::spawn({
            let at = at.clone();
            async move { self.acquire(&at, LONG_WAIT).await }
        });
        let queued = async {
            let is_queued = |state: LockState| state.queue_length == 1;
            while !at.near.inspect(&at.key).await.is_ok_and(is_queued) && !waiting.is_finished() {
                tokio::time::sleep(ms(5)).await;
            }
        };
        within(LONG, queued).await;
        (held, waiting)
    }
}

type Body = BoxFuture<'static, ()>;
type Call = BoxFuture<'static, Result<(), Error>>;
type Run = fn(At, Body) -> Call;

#[distributed_lock(key = "<key>", lease = "2s", wait = "1s", manager = locks)]
async fn annotated(locks: &LockManager, key: &str, body: Body) -> Result<(), Error> {
    body.await;
    Ok(())
}

#[distributed_lock(keys = ["<key>", "<key>:2"], lease = "2s", wait = "1s", manager = locks)]
async fn annotated_several(locks: &LockManager, key: &str, body: Body) -> Result<(), Error> {
    body.await;
    Ok(())
}

macro_rules! runs {
    ($($name:literal => |$at:ident, $body:ident| $run:expr;)*) => {
        [$(($name, |$at, $body| async move { $run.await.map(drop) }.boxed())),*]
    };
}

/// The calls that run a body.
const RUNS: [(&str, Run); 10] = runs! {
    "run" => |at, body| at.mutex().run(async |_| { body.await; Ok::<_, Error>(()) });
    "try_run" => |at, body| at.mutex().try_run(async |_| { body.await; Ok::<_, Error>(()) });
    "run_read" => |at, body| at.rw_lock().run_read(async |_| { body.await; Ok::<_, Error>(()) });
    "run_write" => |at, body| at.rw_lock().run_write(async |_| { body.await; Ok::<_, Error>(()) });
    "run with a permit" => |at, body| at.semaphore().run(async |_| { body.await; Ok::<_, Error>(()) });
    "run of several keys" => |at, body| at.several().run(async |_| { body.await; Ok::<_, Error>(()) });
    "run once" => |at, body| at.mutex().once_per(LONG).run(async |_| { body.await; Ok::<_, Error>(()) });
    "try_run once" => |at, body| at.mutex().once_for(7).try_run(async |_| { body.await; Ok::<_, Error>(()) });
    "attribute" => |at, body| annotated(&at.far, &at.key, body);
    "attribute of several keys" => |at, body| annotated_several(&at.far, &at.key, body);
};

/// An operation's own key, and its managers: the far one is behind the proxy.
#[derive(Clone)]
struct At {
    url: String,
    near: LockManager,
    far: LockManager,
    key: String,
}

impl At {
    fn mutex(&self) -> distlock::Lock {
        self.far.lock(&self.key).lease(LEASE).wait(WAIT)
    }

    fn rw_lock(&self) -> distlock::RwLock {
        self.far.rw_lock(&self.key).lease(LEASE).wait(WAIT)
    }

    fn semaphore(&self) -> distlock::Semaphore {
        self.far.semaphore(&self.key, 1).lease(LEASE).wait(WAIT)
    }

    fn several(&self) -> distlock::MultiLock {
        let keys = [self.key.clone(), format!("{}:2", self.key)];
        self.far.lock_all(keys).lease(LEASE).wait(WAIT)
    }

    /// Starts a call, and returns it once its body runs. The body ends with the sender.
    async fn start(self, run: Run) -> (oneshot::Sender<()>, JoinHandle<Result<(), Error>>) {
        let (started, has_started) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let body = async move {
            let _ = started.send(());
            let _ = ended.await;
        };
        let call = tokio::spawn(run(self, body.boxed()));
        has_started.await.expect("the lock is free");
        (end, call)
    }
}

/// An operation and its bound. Its first part runs before the fault, and returns the second part.
type Operation = (String, Duration, Fails, BoxFuture<'static, Second>);

/// The part of an operation that runs under the fault.
struct Second(Call);

macro_rules! operations {
    ($all:ident, $at:ident: $($name:expr, $bound:expr, $fails:literal, { $($first:tt)* } $second:expr;)*) => {
        $({
            let name = $name.to_string();
            let $at = At { key: name.clone(), ..$at.clone() };
            let first = async move {
                $($first)*
                Second(async move { $second.map(drop) }.boxed())
            };
            $all.push((name, $bound, $fails, first.boxed()));
        })*
    };
}

fn operations(at: &At) -> Vec<Operation> {
    let mut all: Vec<Operation> = Vec::new();
    for kind in [
        Kind::Mutex,
        Kind::Read,
        Kind::Write,
        Kind::Permit,
        Kind::Several,
    ] {
        let name = |operation| format!("{kind:?} {operation}");
        operations! { all, at:
            name("acquire"), WAIT, true, {} kind.acquire(&at, WAIT).await;
            name("try"), COMMAND_TIMEOUT, true, {} kind.try_acquire(&at).await;
            name("waiting"), LONG_WAIT, true, { let (held, waiting) = kind.contend(&at).await; } {
                let result = waiting.await.unwrap();
                drop(held);
                result
            };
            name("release"), RELEASE, false, { let guard = kind.acquire(&at, LONG).await.unwrap(); }
                of_guard!(guard, guard => guard.release().await);
            name("lost"), LEASE, true, { let guard = kind.acquire(&at, LONG).await.unwrap(); }
                Err::<(), _>(of_guard!(&guard, guard => guard.lost().await));
            name("confirmed"), LONG_WAIT + LEASE, true, { let (held, waiting) = kind.contend(&at).await; } {
                let _ = of_guard!(held, guard => guard.release().await);
                let guard = waiting.await.unwrap()?;
                of_guard!(&guard, guard => guard.confirmed().await)
            };
        }
    }
    for (name, run) in RUNS {
        operations! { all, at:
            name, WAIT, true, {} run(at, ready(()).boxed()).await;
            format!("{name}, body that is stopped"), LEASE, true, { let (end, call) = at.start(run).await; } {
                let result = call.await.unwrap();
                drop(end);
                result
            };
            format!("{name}, body that ends"), RELEASE, false, { let (end, call) = at.start(run).await; } {
                drop(end);
                call.await.unwrap()
            };
        }
    }
    for checked in [false, true] {
        operations! { all, at:
            format!("downgrade, checked by a task: {checked}"), LEASE, true, {
                let write = at.rw_lock().wait(LONG).write().await.unwrap();
            } {
                // A check at the deadline ends the downgrade before the watchdog does.
                let held = write.held();
                let checking = tokio::spawn(async move {
                    if !checked {
                        return;
                    }
                    loop {
                        let _ = held.check();
                        tokio::time::sleep(ms(1)).await;
                    }
                });
                let downgraded = write.downgrade().await;
                checking.abort();
                downgraded
            };
            format!("revocation, until the lock is free: {checked}"), LEASE * 2 + ms(2_250) + TIMEOUT, false, {
                let guard = at.near.lock(&at.key).lease(LEASE).acquire().await.unwrap();
                let revoke = at.far.revoke(&at.key).wait(LEASE).wait_until_free(checked);
                let revoking = tokio::spawn(revoke.into_future());
                guard.lost().await;
            } {
                let revoked = revoking.await.unwrap();
                drop(guard);
                revoked
            };
        }
    }
    operations! { all, at:
        "downgrade after a hand-off", LONG_WAIT + LEASE, true, {
            let (held, waiting) = Kind::Write.contend(&at).await;
        } {
            let _ = of_guard!(held, guard => guard.release().await);
            match waiting.await.unwrap()? {
                Guard::Write(write) => write.downgrade().await,
                _ => unreachable!("it writes"),
            }
        };
        "re-entry", WAIT, false, { let outer = at.mutex().wait(LONG).acquire().await.unwrap(); }
            outer.scope(at.mutex().acquire()).await;
        "turn of a sibling", WAIT, true, { let outer = at.mutex().wait(LONG).acquire().await.unwrap(); }
            outer.scope(async {
                let _first = at.mutex().acquire().await?;
                at.mutex().acquire().await
            }).await;
        "ping", TIMEOUT, true, {} at.far.ping().await;
        "inspect", TIMEOUT, true, {} at.far.inspect(&at.key).await;
        "list", TIMEOUT, true, {} at.far.list("").await;
        "delete_record", TIMEOUT, true, {} at.far.delete_record(&at.key, None).await;
        "revoke", TIMEOUT, true, {} at.far.revoke(&at.key).await;
        "connect", TIMEOUT, true, {} LockManager::builder().connect_timeout(TIMEOUT).connect(&at.url).await;
        "acquire while connecting", WAIT, true, {} {
            let far = LockManager::builder().connect_lazy(&at.url)?;
            Kind::Mutex.acquire(&At { far, ..at }, WAIT).await
        };
        "shutdown", SHUTDOWN, false, {
            let at = At { far: connect(&at.url).await, ..at };
            let (end, body) = at.clone().start(RUNS[0].1).await;
            let scoped = at.far.lock("scope").lease(LEASE).wait(LONG).acquire().await.unwrap();
            tokio::spawn(async move { scoped.scope(pending::<()>()).await });
        } {
            at.far.shutdown().await;
            drop(end);
            body.await.unwrap()
        };
    }
    all
}

/// Runs all operations under a fault. Returns how many there were, and those that were wrong.
async fn under((fault, begin): Fault) -> (usize, Vec<String>) {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let url = server.url_via(&proxy);
    let near = connect(&server.url()).await;
    let far = connect(&url).await;
    let key = String::new();
    let operations = operations(&At {
        url,
        near,
        far,
        key,
    })
    .into_iter();
    let prepared = operations.map(|(name, bound, fails, first)| async move {
        // In a task, because only tasks use runtime connections.
        (name, bound, fails, tokio::spawn(first).await.unwrap())
    });
    let prepared = join_all(prepared).await;
    begin(&proxy);
    let ended = prepared
        .into_iter()
        .map(|(name, bound, fails, Second(second))| async move {
            let second = tokio::time::timeout(bound + SLACK, second);
            let wrong = match tokio::spawn(second).await.unwrap() {
                Err(_) => "has not ended",
                // The fault is in force, because these fail.
                Ok(Ok(())) if fails => "succeeded",
                Ok(_) => return None,
            };
            Some(format!(
                "{fault}: {name} {wrong} within {bound:?} and {SLACK:?}"
            ))
        });
    let ended = join_all(ended).await;
    (ended.len(), ended.into_iter().flatten().collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_ends_within_its_bound() {
    let results = join_all(FAULTS.map(under)).await;
    let driven: usize = results.iter().map(|(count, _)| count).sum();
    let wrong: Vec<_> = results.into_iter().flat_map(|(_, wrong)| wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(driven >= 70 * FAULTS.len(), "only {driven} operations");
}
