//! The process of one client: it can be stopped, and it can be killed.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::network::Millis;
use crate::manager::engine::executor::{Decorator, Work};
use crate::util::mutex::lock;

/// Whether a client's process runs. Time goes on while it does not (SIGSTOP, a long pause).
#[derive(Debug, Default)]
pub(crate) struct Host(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// When it goes on, while it is stopped.
    stopped_until: Option<Millis>,
    /// How long it was stopped in all, and when that was last.
    stopped_for: Millis,
    went_on: Option<Millis>,
    killed: bool,
    wakers: Vec<Waker>,
}

impl Host {
    pub(crate) fn stop(&self, now: Millis, until: Millis) {
        let mut state = lock(&self.0);
        state.stopped_for += until - now;
        state.stopped_until = Some(until);
    }

    pub(crate) fn go_on(&self, now: Millis) {
        let mut state = lock(&self.0);
        if state.stopped_until.take().is_none() {
            return;
        }
        state.went_on = Some(now);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        for waker in wakers {
            waker.wake();
        }
    }

    /// Nothing of it ever runs again.
    pub(crate) fn kill(&self, now: Millis) {
        lock(&self.0).killed = true;
        self.go_on(now);
    }

    pub(crate) fn is_killed(&self) -> bool {
        lock(&self.0).killed
    }

    pub(crate) fn stopped_until(&self) -> Option<Millis> {
        lock(&self.0).stopped_until
    }

    /// For how long it did not run, up to now.
    pub(crate) fn stopped_for(&self) -> Millis {
        lock(&self.0).stopped_for
    }

    pub(crate) fn went_on(&self) -> Option<Millis> {
        lock(&self.0).went_on
    }

    /// Puts all tasks of a client into this process.
    pub(crate) fn wrap(self: &Arc<Self>) -> Decorator {
        let host = self.clone();
        Arc::new(move |work| Box::pin(host.clone().within(work)))
    }

    /// A task of this process.
    pub(crate) fn within(self: Arc<Self>, work: Work) -> impl Future<Output = ()> + Send {
        Within {
            host: self,
            work: Some(work),
        }
    }
}

struct Within {
    host: Arc<Host>,
    work: Option<Work>,
}

impl Future for Within {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        {
            let mut state = lock(&self.host.0);
            if state.stopped_until.is_some() {
                state.wakers.push(context.waker().clone());
                return Poll::Pending;
            }
            if state.killed {
                drop(state);
                // Whatever its destructors start is killed as well.
                self.work = None;
                return Poll::Ready(());
            }
        }
        match &mut self.work {
            Some(work) => work.as_mut().poll(context),
            None => Poll::Ready(()),
        }
    }
}
