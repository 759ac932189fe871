//! From spans of `tracing` to spans of OpenTelemetry.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Level, Subscriber};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;

/// A subscriber that gives all spans to this provider. Those of single acquisitions are at DEBUG, below what a service records
/// otherwise.
pub(crate) fn subscriber(provider: &SdkTracerProvider) -> impl Subscriber + Send + Sync + use<> {
    let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("traced"));
    let wanted = Targets::new()
        .with_default(Level::INFO)
        .with_target("distlock", Level::DEBUG);
    tracing_subscriber::registry().with(spans.with_filter(wanted))
}
