//! The spans that OpenTelemetry receives from two calls for one lock, one of which waits.

#![allow(clippy::unwrap_used)]

#[path = "../src/order.rs"]
mod order;
#[path = "../src/telemetry.rs"]
mod telemetry;

use distlock::LockManager;
use distlock_tests::RedisServer;
use opentelemetry::Value;
use opentelemetry::trace::SpanKind;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::subscriber::set_global_default;

fn text(span: &SpanData, name: &str) -> Option<String> {
    let found = span
        .attributes
        .iter()
        .find(|field| field.key.as_str() == name);
    found.map(|field| field.value.as_str().into_owned())
}

fn number(span: &SpanData, name: &str) -> i64 {
    let found = span
        .attributes
        .iter()
        .find(|field| field.key.as_str() == name);
    match found.map(|field| &field.value) {
        Some(Value::I64(number)) => *number,
        _ => panic!("{name} of {}: {:?}", span.name, span.attributes),
    }
}

/// Returns the spans with this name and this parent.
fn inside(spans: &[SpanData], name: &str, parent: &str) -> Vec<SpanData> {
    let is_inside = |span: &&SpanData| {
        let mut above = spans.iter();
        let above = above.find(|above| above.span_context.span_id() == span.parent_span_id);
        span.name == name && above.is_some_and(|above| above.name == parent)
    };
    spans.iter().filter(is_inside).cloned().collect()
}

#[tokio::test]
async fn a_trace_shows_the_wait_and_its_lock() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    // distlock's I/O thread also ends spans.
    set_global_default(telemetry::subscriber(&provider)).unwrap();
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let both = async { tokio::join!(order::order(42), order::order(42)) };
    let (first, second) = distlock::with_manager(locks.clone(), both).await;
    first.and(second).unwrap();
    locks.shutdown().await;
    let spans = exporter.get_finished_spans().unwrap();

    let mut runs = inside(&spans, "distlock.run", "order");
    assert_eq!(runs.len(), 2, "{spans:?}");
    runs.sort_by_key(|run| number(run, "fencing_token"));
    for run in &runs {
        // The template, which is the same for all items.
        assert_eq!(text(run, "lock").as_deref(), Some("inventory:<item>"));
        assert_eq!(text(run, "outcome").as_deref(), Some("released"));
        assert_eq!(number(run, "wait_ms"), 5_000);
        assert!(number(run, "held_ms") >= 50, "{run:?}");
    }
    let (free, handed) = (&runs[0], &runs[1]);
    assert_eq!(text(free, "path").as_deref(), Some("free"));
    assert_ne!(text(handed, "path").as_deref(), Some("free"));
    assert!(number(handed, "waited_ms") >= 1, "{handed:?}");

    let acquired = inside(&spans, "distlock.acquire", "distlock.run");
    assert_eq!(acquired.len(), 2, "{spans:?}");
    let address = server.addr().to_string();
    for acquire in &acquired {
        assert_eq!(acquire.span_kind, SpanKind::Client);
        assert_eq!(text(acquire, "db.system.name").as_deref(), Some("redis"));
        let server = text(acquire, "server.address").unwrap();
        assert!(server.contains(&address), "{server}, not {address}");
        assert_eq!(text(acquire, "outcome").as_deref(), Some("acquired"));
    }
    // No key: spans do not contain it, and lines that do are left out.
    assert!(!format!("{spans:?}").contains("inventory:42"), "{spans:?}");
    // The spans of the body are within the span of the lock.
    assert_eq!(inside(&spans, "update", "distlock.run").len(), 2);
}
