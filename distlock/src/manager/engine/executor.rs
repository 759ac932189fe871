//! Where background work runs: a thread of its own, or (by explicit choice) the caller's runtime.

use std::future::Future;
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

/// Runs the manager's background work.
#[derive(Clone)]
pub(crate) struct Executor {
    pub(crate) handle: Handle,
    /// On the caller's runtime, work is polled once in place: with a store that answers at once it
    /// is done even when that runtime is shutting down.
    pub(crate) inline: bool,
    /// With one, nothing runs in place or on another thread.
    pub(crate) decorator: Option<Decorator>,
}

/// Puts each task under somebody's rule before it is spawned.
pub(crate) type Decorator = Arc<dyn Fn(Work) -> Work + Send + Sync>;

impl Executor {
    /// On the runtime that this is called on.
    pub(crate) fn current() -> Result<Self, Error> {
        let handle = Handle::try_current().map_err(|_| Error::Config {
            detail: "memory_on_current_runtime() was called outside of a tokio runtime; call it inside, \
                     or use LockManager::memory()"
                .into(),
        })?;
        Ok(Executor {
            handle,
            inline: true,
            decorator: None,
        })
    }

    /// Makes what is opened or spawned meanwhile run where background work runs.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    /// A timer for code that need not have a runtime of its own.
    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        // On the caller's runtime it is his, for that which this was made on may be gone.
        let here = self.inline && Handle::try_current().is_ok();
        let _entered = (!here).then(|| self.handle.enter());
        tokio::time::sleep(duration)
    }

    /// Boxes the work, because every type of task that is spawned adds about 6 kB to a program.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if !self.inline {
            self.spawn_later(work);
            return;
        }
        let mut work: Work = Box::pin(work);
        let _entered = self.handle.enter();
        let mut context = Context::from_waker(Waker::noop());
        if work.as_mut().poll(&mut context) == Poll::Pending {
            self.handle.spawn(work);
        }
    }

    /// Spawns work that is not to be polled on this stack.
    pub(crate) fn spawn_later(&self, work: impl Future<Output = ()> + Send + 'static) {
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
            None => drop(self.handle.spawn_blocking(work)),
            Some(_) => self.spawn_later(async move { work() }),
        }
    }
}

/// The I/O thread: all connections, the watchdog and background releases live here, so that user
/// code which blocks its own runtime cannot delay a renewal (R17).
#[derive(Debug)]
pub(crate) struct IoThread {
    stop: Option<oneshot::Sender<()>>,
}

impl IoThread {
    /// Starts the thread. Dropping the `IoThread` asks it to finish: it then awaits `at_end` and
    /// ends. Work may be sent to another runtime than the thread's own.
    pub(crate) fn start<F>(
        elsewhere: Option<Handle>,
        at_end: F,
    ) -> Result<(IoThread, Executor), Error>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let failed = |error: std::io::Error| Error::Config {
            detail: format!("the lock manager's I/O thread could not be started: {error}"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let executor = Executor {
            handle: elsewhere.unwrap_or_else(|| runtime.handle().clone()),
            inline: false,
            decorator: None,
        };
        let (stop, stopped) = oneshot::channel();
        thread::Builder::new()
            .name("distlock-io".into())
            .spawn(move || {
                runtime.block_on(async {
                    // An error means that the sender was dropped, which is how it is asked to stop.
                    let _ = stopped.await;
                    at_end.await;
                });
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        Ok((IoThread { stop: Some(stop) }, executor))
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The thread may be gone already.
            let _ = stop.send(());
        }
    }
}
