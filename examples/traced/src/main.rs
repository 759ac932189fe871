//! Two orders for the same item, traced: the spans show that one of them waited for the other, and what it waited for.
//!
//! They are written to stdout. For a collector, take `opentelemetry_otlp::SpanExporter` and `with_batch_exporter`; nothing else
//! changes. Which fields the spans have is said in docs/operations/observing.md.

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
    // What is batched is exported before the process ends.
    provider.shutdown()?;
    Ok(())
}
