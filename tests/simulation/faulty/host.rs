//! The process of one client, which can be stopped and killed.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::network::Millis;
use crate::manager::core::executor::{Decorator, Work};
use crate::util::sync::lock;

/// The state of a client's process. Time advances while it is stopped (SIGSTOP, a long pause).
#[derive(Debug, Default)]
pub(crate) struct Host(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The time at which the process resumes, while it is stopped.
    stopped_until: Option<Millis>,
    /// The total length of all stops; `went_on` is when the process last resumed.
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

    /// Kills the process: none of its tasks ever runs again.
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

    /// Returns the total length of all stops; a stop counts in full once it has begun.
    pub(crate) fn stopped_for(&self) -> Millis {
        lock(&self.0).stopped_for
    }

    pub(crate) fn went_on(&self) -> Option<Millis> {
        lock(&self.0).went_on
    }

    /// Returns a decorator that moves all tasks of a client into this process.
    pub(crate) fn wrap(self: &Arc<Self>) -> Decorator {
        let host = self.clone();
        Arc::new(move |work| Box::pin(host.clone().within(work)))
    }

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
                // Tasks that its destructors start are killed as well.
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
