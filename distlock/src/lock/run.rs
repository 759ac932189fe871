//! Runs a body under a lock. Code that does not depend on the type of the body is compiled once, so
//! that every annotated function adds little to a program.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::error::{BodyState, Error};
use crate::lock::guards::Guards;
use crate::lock::scope::{self, Frame};
use crate::manager::core::Core;
use crate::manager::telemetry::span::{self, RunSpan, TracedLock};

/// A type-erased future of this crate, so `Send` and `Sync` are checked once.
pub(crate) type Erased<T> = Pin<Box<dyn Future<Output = T> + Send + Sync>>;

/// Acquires locks for a body, in a span that covers both.
pub(crate) async fn acquire_in_span<G: Into<Guards>>(
    core: &Core,
    subject: &TracedLock<'_>,
    acquiring: Pin<&mut impl Future<Output = Result<G, Error>>>,
) -> Result<(Guards, RunSpan), Error> {
    let mut span = RunSpan::begin(core, subject);
    let started = span.is_enabled().then(|| core.clock.now());
    let acquired = span::instrument(span.span(), acquiring).await;
    let waited = started.map(|started| core.clock.now().since(started));
    match acquired {
        Ok(guards) => {
            let guards = guards.into();
            span::record_acquired(span.span(), guards.path(), waited, guards.fencing_token());
            Ok((guards, span))
        }
        Err(error) => {
            span.end_failed(subject, &error, waited);
            Err(error)
        }
    }
}

/// Runs a body under its locks, and releases them. The future is small, because the body is boxed
/// here.
pub(crate) fn run_body<T, E: From<Error>, F: Future<Output = Result<T, E>>>(
    guards: Guards,
    span: RunSpan,
    body: F,
) -> impl Future<Output = Result<T, E>> {
    let running = RunStage::Running(Running::new(guards, span));
    let mut run = Run::new(running, false, body, Result::is_ok);
    async move { poll_fn(|context| run.poll(context)).await? }
}

/// A call that acquires the lock, runs the body and releases the lock.
pub(crate) struct Run<F: Future> {
    stage: RunStage,
    body: BoxedBody<F>,
}

impl<F: Future> Run<F> {
    pub(crate) fn new(
        stage: RunStage,
        finish_on_loss: bool,
        body: F,
        succeeded: fn(&F::Output) -> bool,
    ) -> Self {
        let body = BoxedBody {
            future: Some(Box::pin(body)),
            output: None,
            succeeded,
            finish_on_loss,
        };
        Run { stage, body }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<F::Output, Error>> {
        match self.stage.poll(context, &mut self.body) {
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

    /// Returns true if the body continues after a loss. It never starts after one.
    fn finishes_on_loss(&self) -> bool;
}

struct BoxedBody<F: Future> {
    future: Option<Pin<Box<F>>>,
    output: Option<F::Output>,
    succeeded: fn(&F::Output) -> bool,
    finish_on_loss: bool,
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

    fn finishes_on_loss(&self) -> bool {
        self.finish_on_loss
    }
}

/// The progress of a run.
pub(crate) enum RunStage {
    Acquiring(Erased<Result<(Guards, RunSpan), Error>>),
    Running(Box<Running>),
    Releasing(Erased<Result<(), Error>>),
    /// The body runs without a lock.
    Unlocked,
    Done,
}

impl RunStage {
    fn poll(&mut self, context: &mut Context<'_>, body: &mut dyn Body) -> Poll<Result<(), Error>> {
        loop {
            let ended = match self {
                RunStage::Acquiring(acquiring) => match acquiring.as_mut().poll(context) {
                    Poll::Ready(Ok((guards, span))) => {
                        *self = RunStage::Running(Running::new(guards, span));
                        continue;
                    }
                    ended => ended.map_ok(drop),
                },
                RunStage::Running(running) => match running.poll(context, body) {
                    Poll::Ready(result) => {
                        self.release(result, body);
                        continue;
                    }
                    Poll::Pending => return Poll::Pending,
                },
                RunStage::Releasing(releasing) => releasing.as_mut().poll(context),
                RunStage::Unlocked if body.poll(context) => Poll::Ready(Ok(())),
                RunStage::Unlocked => Poll::Pending,
                RunStage::Done => panic!("a locked body was polled after its end"),
            };
            if ended.is_ready() {
                *self = RunStage::Done;
            }
            return ended;
        }
    }

    fn release(&mut self, result: Result<(), Error>, body: &mut dyn Body) {
        self.stop(body);
        let success = result.is_ok() && body.succeeded();
        let finish_on_loss = body.finishes_on_loss();
        if let RunStage::Running(running) = std::mem::replace(self, RunStage::Done) {
            *self = RunStage::Releasing(Box::pin(running.release(result, success, finish_on_loss)));
        }
    }

    /// Drops the body's future while the lock is held and `current()` still works.
    fn stop(&self, body: &mut dyn Body) {
        if let RunStage::Running(running) = self {
            let _in_span = running.span.span().enter();
            scope::drop_scoped(running.frame.clone(), || body.drop_future());
        }
    }
}

pub(crate) struct Running {
    /// Wakes the task when a hold ends. The holds count a running body while this exists.
    end_watcher: Erased<()>,
    frame: Arc<Frame>,
    has_started: bool,
    span: RunSpan,
    guards: Guards,
}

impl Running {
    pub(crate) fn new(guards: Guards, span: RunSpan) -> Box<Self> {
        Box::new(Running {
            end_watcher: Box::pin(guards.watch_body()),
            frame: guards.frame(),
            has_started: false,
            span,
            guards,
        })
    }

    fn poll(&mut self, context: &mut Context<'_>, body: &mut dyn Body) -> Poll<Result<(), Error>> {
        // Polled before the check, so that an end of the hold between the two is not missed.
        let _ = self.end_watcher.as_mut().poll(context);
        if !(body.finishes_on_loss() && self.has_started)
            && let Some(error) = self.guards.check_error()
        {
            return Poll::Ready(Err(error.with_body(BodyState::Stopped)));
        }
        self.has_started = true;
        let _in_span = self.span.span().enter();
        if !scope::sync_scoped(&self.frame, || body.poll(context)) {
            return Poll::Pending;
        }
        Poll::Ready(match self.guards.check_error() {
            Some(error) if !body.finishes_on_loss() => Err(error.with_body(BodyState::Completed)),
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
            guards,
            ..
        } = *self;
        drop(end_watcher);
        let held_for = span.is_enabled().then(|| guards.age());
        let loss = span::instrument(span.span(), pin!(guards.finish(success))).await;
        span.end(held_for, result.as_ref().err().or(loss.as_ref()));
        match loss {
            // The loss is logged. The caller chose to get the body's own result.
            Some(error) if !finish_on_loss => result.and(Err(error)),
            _ => result,
        }
    }
}
