//! Where background work runs: a thread of its own, or (by explicit choice) the caller's runtime.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::Error;

/// Runs the manager's background work.
#[derive(Debug)]
pub(crate) struct Executor {
    handle: Handle,
    /// On the caller's runtime, work is polled once in place: with a store that answers at once it is
    /// done even when that runtime is shutting down.
    inline: bool,
    /// How a simulation runs the tasks of one client.
    #[cfg(test)]
    wrap: Option<Wrap>,
}

#[cfg(test)]
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Puts a task under the rule of a simulation, which may freeze it.
#[cfg(test)]
pub(crate) struct Wrap(pub(crate) Box<dyn Fn(Work) -> Work + Send + Sync>);

#[cfg(test)]
impl std::fmt::Debug for Wrap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wrap").finish_non_exhaustive()
    }
}

impl Executor {
    pub(crate) fn current() -> Result<Self, Error> {
        let handle = Handle::try_current().map_err(|_| Error::Config {
            detail: "memory_on_current_runtime() was called outside of a tokio runtime; call it inside, \
                     or use LockManager::memory()"
                .into(),
        })?;
        Ok(Executor {
            handle,
            inline: true,
            #[cfg(test)]
            wrap: None,
        })
    }

    /// A client of a simulation: all on one runtime, each task wrapped, nothing on another thread.
    #[cfg(test)]
    pub(crate) fn simulated(wrap: Wrap) -> Self {
        Executor {
            handle: Handle::current(),
            inline: false,
            wrap: Some(wrap),
        }
    }

    pub(crate) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.handle.enter()
    }

    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if self.inline {
            let mut work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(work);
            let _entered = self.handle.enter();
            let mut context = Context::from_waker(Waker::noop());
            if work.as_mut().poll(&mut context) == Poll::Ready(()) {
                return;
            }
            self.handle.spawn(work);
        } else {
            self.spawn_later(work);
        }
    }

    /// Spawns work that is not to be polled on this stack.
    pub(crate) fn spawn_later(&self, work: impl Future<Output = ()> + Send + 'static) {
        #[cfg(test)]
        if let Some(wrap) = &self.wrap {
            self.handle.spawn(wrap.0(Box::pin(work)));
            return;
        }
        self.handle.spawn(work);
    }

    /// Runs code that may block, such as a tracing subscriber, away from timers and sockets.
    pub(crate) fn spawn_blocking(&self, work: impl FnOnce() + Send + 'static) {
        #[cfg(test)]
        if let Some(wrap) = &self.wrap {
            self.handle.spawn(wrap.0(Box::pin(async move { work() })));
            return;
        }
        self.handle.spawn_blocking(work);
    }
}

/// The I/O thread: all connections, the watchdog and background releases live here, so that user
/// code which blocks its own runtime cannot delay a renewal.
#[derive(Debug)]
pub(crate) struct IoThread {
    stop: Option<oneshot::Sender<()>>,
}

impl IoThread {
    /// Starts the thread. Dropping the `IoThread` asks it to finish: it then awaits `at_end` and ends.
    pub(crate) fn start<F>(at_end: F) -> Result<(IoThread, Executor), Error>
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
        let handle = runtime.handle().clone();
        #[cfg(sabotage)]
        let handle = crate::sabotage::runtime(handle);
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
        let executor = Executor {
            handle,
            inline: false,
            #[cfg(test)]
            wrap: None,
        };
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
