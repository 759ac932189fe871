//! The executor of background work: a thread of its own, or (by choice) the caller's runtime.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::{EnterGuard, Handle};
use tokio::sync::oneshot;
use tokio::time::Sleep;

use crate::error::Error;

pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone)]
pub(crate) struct Executor {
    pub(crate) handle: Handle,
    /// On the caller's runtime, work is polled once in place. With a store that replies at once, it
    /// is done even while that runtime shuts down.
    pub(crate) inline: bool,
    /// If set, no work runs in place or on another thread.
    pub(crate) decorator: Option<Decorator>,
}

/// Wraps each task before it is spawned, so that a simulation can control it.
pub(crate) type Decorator = Arc<dyn Fn(Work) -> Work + Send + Sync>;

impl Executor {
    /// Returns an executor on the current runtime.
    pub(crate) fn current() -> Result<Self, Error> {
        let handle = Handle::try_current().map_err(|_| Error::Config {
            detail: "in_memory_on_current_runtime() was called outside of a tokio runtime; call it inside, \
                     or use LockManager::in_memory()"
                .into(),
        })?;
        Ok(Executor {
            handle,
            inline: true,
            decorator: None,
        })
    }

    /// Enters the runtime of background work, until the guard is dropped.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    /// Returns a timer for code that may have no runtime of its own.
    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        // With `inline`, the current runtime's timer, because the original runtime may be gone.
        let is_current = self.inline && Handle::try_current().is_ok();
        let _entered = (!is_current).then(|| self.handle.enter());
        tokio::time::sleep(duration)
    }

    /// Polls the work once in place if `inline` is set, and spawns it if it is still pending.
    pub(crate) fn run_or_spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if !self.inline {
            self.spawn(work);
            return;
        }
        let mut work: Work = Box::pin(work);
        let _entered = self.handle.enter();
        let mut context = Context::from_waker(Waker::noop());
        if work.as_mut().poll(&mut context) == Poll::Pending {
            self.handle.spawn(work);
        }
    }

    /// Spawns boxed work, because every type of spawned task adds about 6 kB to a program.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let work: Work = Box::pin(work);
        self.handle.spawn(match &self.decorator {
            None => work,
            Some(decorator) => decorator(work),
        });
    }

    /// Runs code that may block, such as a tracing subscriber, away from timers and sockets.
    pub(crate) fn spawn_blocking(&self, work: impl FnOnce() + Send + 'static) {
        let work: Box<dyn FnOnce() + Send> = Box::new(work);
        match &self.decorator {
            // Tokio panics if the system refuses to start a thread, and the work stays queued. The
            // panic must not end the caller, such as the driver.
            None => drop(catch_unwind(AssertUnwindSafe(|| {
                self.handle.spawn_blocking(work)
            }))),
            Some(_) => self.spawn(async move { work() }),
        }
    }
}

/// The I/O thread. The driver, the queue checks and all connections except runtime connections run
/// here. User code that blocks its own runtime cannot delay a renewal (R17).
pub(crate) struct IoThread {
    stop: oneshot::Sender<Work>,
}

impl IoThread {
    /// Starts the thread, which ends with the `IoThread`. `background_runtime` is another runtime
    /// for the work.
    pub(crate) fn start(background_runtime: Option<Handle>) -> Result<(IoThread, Executor), Error> {
        let failed = |error: std::io::Error| Error::Config {
            detail: format!(
                "the lock manager's I/O thread could not be started ({error}); check the limits of \
                threads and open files"
            ),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let executor = Executor {
            handle: background_runtime.unwrap_or_else(|| runtime.handle().clone()),
            inline: false,
            decorator: None,
        };
        let (stop, stopped) = oneshot::channel::<Work>();
        thread::Builder::new()
            .name("distlock-io".into())
            .spawn(move || {
                runtime.block_on(async {
                    if let Ok(last_work) = stopped.await {
                        last_work.await;
                    }
                });
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        Ok((IoThread { stop }, executor))
    }

    /// Ends the thread after this work.
    pub(crate) fn stop_after(self, last_work: impl Future<Output = ()> + Send + 'static) {
        // The thread may have ended already.
        let _ = self.stop.send(Box::pin(last_work));
    }
}
