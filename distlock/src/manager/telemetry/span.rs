//! Spans: one around a run (acquire, body and release), and one in it around the acquisition.
//! Neither is created if its level is disabled.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{Span, debug_span, info_span};

use crate::config::options::Options;
use crate::error::Error;
use crate::fencing::FencingToken;
use crate::manager::core::Core;
use crate::manager::telemetry::logging::TARGET;
use crate::observer::event::{AcquireFailure, AcquirePath, HoldOutcome, UNLABELED};
use crate::protocol::kind::Kind;

/// The lock, or the locks, of a span.
pub(crate) struct TracedLock<'a> {
    /// The key, or all keys.
    pub(crate) key: &'a str,
    pub(crate) kind: Kind,
    pub(crate) options: &'a Options,
}

impl TracedLock<'_> {
    fn name(&self) -> &str {
        self.options.label.as_deref().unwrap_or(UNLABELED)
    }

    /// Returns how a call that got this error ended.
    fn outcome(&self, error: &Error) -> &'static str {
        if self.options.is_skip(error) {
            return "skipped";
        }
        AcquireFailure::of(error).map_or("misconfigured", |outcome| outcome.as_str())
    }

    /// Records the fields that not every span has.
    fn record(&self, core: &Core, span: &Span) {
        if core.show_keys {
            span.record("key", self.key);
        }
        if let Kind::Permits { weight, .. } = self.kind {
            span.record("weight", i64::from(weight));
        }
    }
}

/// The span `distlock.run`.
#[derive(Debug)]
pub(crate) struct RunSpan {
    span: Span,
    has_ended: bool,
}

impl RunSpan {
    pub(crate) fn begin(core: &Core, subject: &TracedLock<'_>) -> Self {
        let span = info_span!(
            target: TARGET,
            "distlock.run",
            lock = subject.name(),
            key = Empty,
            kind = subject.kind.hold_kind().as_str(),
            weight = Empty,
            wait_ms = millis(subject.options.wait()),
            lease_ms = millis(subject.options.lease()),
            outcome = Empty,
            waited_ms = Empty,
            held_ms = Empty,
            fencing_token = Empty,
            path = Empty,
        );
        subject.record(core, &span);
        RunSpan {
            span,
            has_ended: false,
        }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Returns true if the span is enabled.
    pub(crate) fn is_enabled(&self) -> bool {
        !self.span.is_disabled()
    }

    /// Records that the call of `subject` ended without its lock.
    pub(crate) fn end_failed(
        &mut self,
        subject: &TracedLock<'_>,
        error: &Error,
        waited: Option<Duration>,
    ) {
        self.span.record("waited_ms", waited.map(millis));
        self.record_outcome(subject.outcome(error));
    }

    /// Records the end of the run. `held` is the age of its hold, `error` is the error of a hold
    /// that ended early.
    pub(crate) fn end(mut self, held: Option<Duration>, error: Option<&Error>) {
        self.span.record("held_ms", held.map(millis));
        self.record_outcome(match error {
            None => HoldOutcome::Released.as_str(),
            Some(Error::MaxHoldExceeded { .. }) => HoldOutcome::MaxHoldExceeded.as_str(),
            Some(_) => HoldOutcome::Lost.as_str(),
        });
    }

    fn record_outcome(&mut self, outcome: &str) {
        self.has_ended = true;
        self.span.record("outcome", outcome);
    }
}

impl Drop for RunSpan {
    fn drop(&mut self) {
        if !self.has_ended && self.is_enabled() {
            self.record_outcome(drop_outcome().as_str());
        }
    }
}

/// Polls a future in a span. It stays pinned, because moving a large one would cost more than the
/// span.
pub(crate) async fn instrument<F: Future + ?Sized>(
    span: &Span,
    mut future: Pin<&mut F>,
) -> F::Output {
    poll_fn(|context| {
        let _in_span = span.enter();
        future.as_mut().poll(context)
    })
    .await
}

/// Converts a number for OpenTelemetry: exporters turn all but signed numbers into strings.
fn as_i64(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

fn millis(duration: Duration) -> i64 {
    as_i64(duration.as_millis())
}

/// Returns how a hold ends when its holder is dropped without a release.
pub(crate) fn drop_outcome() -> HoldOutcome {
    if std::thread::panicking() {
        HoldOutcome::Panicked
    } else {
        HoldOutcome::Cancelled
    }
}

/// Runs an acquisition in the span `distlock.acquire`. `outcome` returns how it got its locks, and
/// the token if there is only one.
pub(crate) async fn trace_acquire<T>(
    core: &Core,
    subject: &TracedLock<'_>,
    acquiring: Pin<&mut impl Future<Output = Result<T, Error>>>,
    outcome: impl FnOnce(&T) -> (AcquirePath, Option<FencingToken>),
) -> Result<T, Error> {
    let span = acquire_span(core, subject);
    if span.is_disabled() {
        return acquiring.await;
    }
    let started = core.clock.now();
    let result = instrument(&span, acquiring).await;
    let waited = core.clock.now().since(started);
    match &result {
        Ok(acquired) => {
            let (path, token) = outcome(acquired);
            span.record("outcome", "acquired");
            record_acquired(&span, path, Some(waited), token);
        }
        Err(error) => {
            span.record("waited_ms", millis(waited));
            span.record("outcome", subject.outcome(error));
        }
    }
    result
}

pub(crate) fn record_acquired(
    span: &Span,
    path: AcquirePath,
    waited: Option<Duration>,
    token: Option<FencingToken>,
) {
    span.record("waited_ms", waited.map(millis));
    span.record("fencing_token", token.map(|token| as_i64(token.get())));
    span.record("path", path.as_str());
}

/// Returns the span `distlock.acquire`.
fn acquire_span(core: &Core, subject: &TracedLock<'_>) -> Span {
    let span = debug_span!(
        target: TARGET,
        "distlock.acquire",
        otel.kind = "client",
        db.system.name = Empty,
        server.address = Empty,
        lock = subject.name(),
        key = Empty,
        kind = subject.kind.hold_kind().as_str(),
        weight = Empty,
        outcome = Empty,
        waited_ms = Empty,
        fencing_token = Empty,
        path = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    span.record("db.system.name", core.system);
    if let Some(address) = core.address() {
        span.record("server.address", address);
    }
    subject.record(core, &span);
    span
}
