//! Two traced orders for the same item. The spans show that one waited for the other's lock.
//!
//! They are written to stdout. For a collector, use `opentelemetry_otlp::SpanExporter` and
//! `with_batch_exporter`. docs/operations/observing.md lists the fields of the spans.

mod order;
mod telemetry;

use std::env;

use anyhow::Result;
use distlock::LockManager;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::subscriber::set_global_default;

use order::order;

#[tokio::main]
async fn main() -> Result<()> {
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(opentelemetry_stdout::SpanExporter::default())
        .build();
    set_global_default(telemetry::subscriber(&provider))?;
    let store = env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:traced".into());
    distlock::install(LockManager::connect(&store).await?)?;

    let (first, second) = tokio::join!(order(42), order(42));
    first.and(second)?;

    distlock::shutdown().await;
    // Exports batched spans before the process exits.
    provider.shutdown()?;
    Ok(())
}
