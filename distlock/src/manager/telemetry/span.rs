//! Spans: one around a run, which is acquire, body and release, and one in it around the
//! acquisition. None is made where its level is off.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{Span, debug_span, info_span};

use crate::config::options::Options;
use crate::error::Error;
use crate::fencing::FencingToken;
use crate::manager::engine::core::Core;
use crate::manager::telemetry::call;
use crate::manager::telemetry::report::TARGET;
use crate::observer::event::{AcquirePath, HoldOutcome, UNLABELED};

/// The span `distlock.run`.
#[derive(Debug)]
pub(crate) struct RunSpan {
    span: Span,
    is_over: bool,
}

impl RunSpan {
    pub(crate) fn begin(core: &Core, key: &str, options: &Options) -> Self {
        let span = info_span!(
            target: TARGET,
            "distlock.run",
            lock = options.label.as_deref().unwrap_or(UNLABELED),
            key = Empty,
            wait_ms = millis(options.wait),
            lease_ms = millis(options.lease),
            outcome = Empty,
            waited_ms = Empty,
            held_ms = Empty,
            fencing_token = Empty,
            path = Empty,
        );
        if core.shows_keys {
            span.record("key", key);
        }
        RunSpan {
            span,
            is_over: false,
        }
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Whether anybody sees it.
    pub(crate) fn is_seen(&self) -> bool {
        !self.span.is_disabled()
    }

    pub(crate) fn acquired(
        &self,
        path: AcquirePath,
        waited: Option<Duration>,
        token: FencingToken,
    ) {
        self.span.record("waited_ms", waited.map(millis));
        self.span.record("fencing_token", number(token.get()));
        self.span.record("path", path.as_str());
    }

    pub(crate) fn refused(&mut self, error: &Error, waited: Option<Duration>) {
        self.span.record("waited_ms", waited.map(millis));
        self.over(refusal(error));
    }

    /// The run is over, with the error of its hold, if that ended before. The body has taken so
    /// long.
    pub(crate) fn ended(mut self, held: Option<Duration>, error: Option<&Error>) {
        self.span.record("held_ms", held.map(millis));
        self.over(match error {
            None => HoldOutcome::Released.as_str(),
            Some(Error::MaxHoldExceeded { .. }) => HoldOutcome::MaxHoldExceeded.as_str(),
            Some(_) => HoldOutcome::Lost.as_str(),
        });
    }

    fn over(&mut self, outcome: &str) {
        self.is_over = true;
        self.span.record("outcome", outcome);
    }
}

impl Drop for RunSpan {
    fn drop(&mut self) {
        if !self.is_over && self.is_seen() {
            self.over(dropped().as_str());
        }
    }
}

/// Polls something in a span. What is large stays where it is, for moving it would cost more than
/// the span.
pub(crate) async fn within<F: Future + ?Sized>(span: &Span, mut future: Pin<&mut F>) -> F::Output {
    poll_fn(|context| {
        let _in_span = span.enter();
        future.as_mut().poll(context)
    })
    .await
}

/// OpenTelemetry has signed numbers only; of others exporters make texts.
fn number(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

fn millis(duration: Duration) -> i64 {
    number(duration.as_millis())
}

/// How a hold ends whose holder is dropped without a word.
pub(crate) fn dropped() -> HoldOutcome {
    if std::thread::panicking() {
        HoldOutcome::Panicked
    } else {
        HoldOutcome::Cancelled
    }
}

/// The span `distlock.acquire`.
pub(crate) fn acquire(core: &Core, key: &str, label: Option<&str>) -> Span {
    let span = debug_span!(
        target: TARGET,
        "distlock.acquire",
        otel.kind = "client",
        db.system.name = Empty,
        server.address = Empty,
        lock = label.unwrap_or(UNLABELED),
        key = Empty,
        outcome = Empty,
        waited_ms = Empty,
        fencing_token = Empty,
        path = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    match core.address() {
        Some(address) => {
            span.record("db.system.name", "redis");
            span.record("server.address", address);
        }
        None => {
            span.record("db.system.name", "memory");
        }
    }
    if core.shows_keys {
        span.record("key", key);
    }
    span
}

/// Records in the span of an acquisition how that came out.
pub(crate) fn acquired(
    span: &Span,
    waited: Duration,
    how: Result<(AcquirePath, FencingToken), &Error>,
) {
    span.record("waited_ms", millis(waited));
    match how {
        Ok((path, fencing_token)) => {
            span.record("outcome", "acquired");
            span.record("fencing_token", fencing_token.get());
            span.record("path", path.as_str());
        }
        Err(error) => {
            span.record("outcome", refusal(error));
        }
    }
}

fn refusal(error: &Error) -> &'static str {
    call::refused(error).map_or("misconfigured", |outcome| outcome.as_str())
}
