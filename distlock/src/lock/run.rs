//! Runs a body under a lock. Code that does not depend on the type of the body is compiled once, so
//! that every annotated function adds little to a program.

use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::error::{BodyState, Error};
use crate::lock::guard::LockGuard;
use crate::lock::scope::{self, Frame};
use crate::manager::telemetry::span::{self, RunSpan};

/// A type-erased future of this crate, so `Send` and `Sync` are checked once.
pub(crate) type Erased<T> = Pin<Box<dyn Future<Output = T> + Send + Sync>>;

/// A call that acquires the lock, runs the body and releases the lock.
pub(crate) struct Run<F: Future> {
    stage: Stage,
    body: BoxedBody<F>,
    /// True if the body continues after a loss. It never starts after one.
    finish_on_loss: bool,
}

impl<F: Future> Run<F> {
    pub(crate) fn new(
        stage: Stage,
        finish_on_loss: bool,
        body: F,
        succeeded: fn(&F::Output) -> bool,
    ) -> Self {
        let body = BoxedBody {
            future: Some(Box::pin(body)),
            output: None,
            succeeded,
        };
        Run {
            stage,
            body,
            finish_on_loss,
        }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<F::Output, Error>> {
        match self
            .stage
            .poll(context, &mut self.body, self.finish_on_loss)
        {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => match self.body.output.take() {
                Some(output) => Poll::Ready(Ok(output)),
                None => unreachable!("a run without an error has an output"),
            },
        }
    }
}

impl<F: Future> Drop for Run<F> {
    fn drop(&mut self) {
        self.stage.stop(&mut self.body);
    }
}

/// A body of any type, borrowed for every poll. A future that owned a `dyn Body` would be `Send`
/// for all bodies or for none.
trait Body {
    /// Polls the body, and returns true once it has ended.
    fn poll(&mut self, context: &mut Context<'_>) -> bool;
    fn drop_future(&mut self);
    fn succeeded(&self) -> bool;
}

struct BoxedBody<F: Future> {
    future: Option<Pin<Box<F>>>,
    output: Option<F::Output>,
    succeeded: fn(&F::Output) -> bool,
}

impl<F: Future> Body for BoxedBody<F> {
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(future) = &mut self.future
            && let Poll::Ready(output) = future.as_mut().poll(context)
        {
            self.output = Some(output);
        }
        self.output.is_some()
    }

    fn drop_future(&mut self) {
        self.future = None;
    }

    fn succeeded(&self) -> bool {
        self.output.as_ref().is_some_and(self.succeeded)
    }
}

/// The progress of a run.
pub(crate) enum Stage {
    Acquiring(Erased<Result<(LockGuard, RunSpan), Error>>),
    Running(Box<Running>),
    Releasing(Erased<Result<(), Error>>),
    Done,
}

impl Stage {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        body: &mut dyn Body,
        finish_on_loss: bool,
    ) -> Poll<Result<(), Error>> {
        loop {
            let ended = match self {
                Stage::Acquiring(acquiring) => match acquiring.as_mut().poll(context) {
                    Poll::Ready(Ok((guard, span))) => {
                        *self = Stage::Running(Running::new(guard, span));
                        continue;
                    }
                    ended => ended.map_ok(drop),
                },
                Stage::Running(running) => match running.poll(context, body, finish_on_loss) {
                    Poll::Ready(result) => {
                        self.release(result, body, finish_on_loss);
                        continue;
                    }
                    Poll::Pending => return Poll::Pending,
                },
                Stage::Releasing(releasing) => releasing.as_mut().poll(context),
                Stage::Done => panic!("a locked body was polled after its end"),
            };
            if ended.is_ready() {
                *self = Stage::Done;
            }
            return ended;
        }
    }

    fn release(&mut self, result: Result<(), Error>, body: &mut dyn Body, finish_on_loss: bool) {
        self.stop(body);
        let success = result.is_ok() && body.succeeded();
        if let Stage::Running(running) = std::mem::replace(self, Stage::Done) {
            *self = Stage::Releasing(Box::pin(running.release(result, success, finish_on_loss)));
        }
    }

    /// Drops the body's future while the lock is held and `current()` still works.
    fn stop(&self, body: &mut dyn Body) {
        if let Stage::Running(running) = self {
            let _in_span = running.span.span().enter();
            scope::drop_scoped(running.guard.frame(), || body.drop_future());
        }
    }
}

pub(crate) struct Running {
    /// Wakes the task when the hold ends. The hold counts a running body while this exists.
    end_watcher: Erased<()>,
    frame: Arc<Frame>,
    has_started: bool,
    span: RunSpan,
    guard: LockGuard,
}

impl Running {
    pub(crate) fn new(guard: LockGuard, span: RunSpan) -> Box<Self> {
        let held = guard.held();
        let end_watcher = async move {
            let _running = held.entry.start_body();
            held.entry.ended.notified().await;
            // This future may be polled again.
            pending().await
        };
        Box::new(Running {
            end_watcher: Box::pin(end_watcher),
            frame: guard.frame(),
            has_started: false,
            span,
            guard,
        })
    }

    fn poll(
        &mut self,
        context: &mut Context<'_>,
        body: &mut dyn Body,
        finish_on_loss: bool,
    ) -> Poll<Result<(), Error>> {
        let held = &self.guard.held;
        // Polled before the check, so that an end of the hold between the two is not missed.
        let _ = self.end_watcher.as_mut().poll(context);
        if !(finish_on_loss && self.has_started)
            && let Some(error) = held.error()
        {
            return Poll::Ready(Err(error.with_body(BodyState::Stopped)));
        }
        self.has_started = true;
        let _in_span = self.span.span().enter();
        if !scope::sync_scoped(&self.frame, || body.poll(context)) {
            return Poll::Pending;
        }
        Poll::Ready(match held.error() {
            Some(error) if !finish_on_loss => Err(error.with_body(BodyState::Completed)),
            _ => Ok(()),
        })
    }

    async fn release(
        self: Box<Self>,
        result: Result<(), Error>,
        success: bool,
        finish_on_loss: bool,
    ) -> Result<(), Error> {
        let Running {
            end_watcher,
            span,
            guard,
            ..
        } = *self;
        drop(end_watcher);
        let held_for = span.is_enabled().then(|| guard.held.age());
        let loss = span::instrument(span.span(), pin!(guard.finish(success))).await;
        span.end(held_for, result.as_ref().err().or(loss.as_ref()));
        match loss {
            // The loss is logged. The caller chose to get the body's own result.
            Some(error) if !finish_on_loss => result.and(Err(error)),
            _ => result,
        }
    }
}
