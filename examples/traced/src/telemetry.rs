//! Converts spans of `tracing` to spans of OpenTelemetry.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{FilterFn, LevelFilter};
use tracing_subscriber::layer::SubscriberExt as _;

/// Returns a subscriber that passes spans to this provider.
pub(crate) fn subscriber(provider: &SdkTracerProvider) -> impl Subscriber + Send + Sync + use<> {
    let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("traced"));
    let wanted = FilterFn::new(is_wanted).with_max_level_hint(LevelFilter::DEBUG);
    tracing_subscriber::registry().with(spans.with_filter(wanted))
}

/// INFO, and the DEBUG spans of acquisitions, but no DEBUG lines, because they name keys.
fn is_wanted(what: &Metadata<'_>) -> bool {
    *what.level() <= Level::INFO || what.is_span() && what.target() == "distlock"
}
