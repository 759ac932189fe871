//! The Prometheus exporter as set up in `docs/operations/observing.md`: the metrics that the alerts
//! query, and the size of its output. A process has one exporter, so this is its own program.

use std::collections::BTreeSet;
use std::time::Duration;

use distlock::{Error, LockManager};
use distlock_tests::documents::{blocks, document};
use distlock_tests::{RedisServer, eventually_async};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

const LONG: Duration = Duration::from_secs(60);

/// Sets up the exporter with the calls of the manual.
fn builder() -> PrometheusBuilder {
    let manual = blocks(&document("docs/operations/observing.md"));
    let setup = manual
        .iter()
        .find_map(|block| block.text.split_once("PrometheusBuilder::new()"));
    let (_, setup) = setup.expect("the manual sets up an exporter");
    let (calls, _) = setup.split_once(".install()").expect("it is installed");
    let calls = calls.lines().map(str::trim).filter(|line| !line.is_empty());
    calls.fold(PrometheusBuilder::new(), |builder, call| match call {
        ".with_recommended_naming(true)" => builder.with_recommended_naming(true),
        ".set_buckets_for_metric(Matcher::Prefix(\"distlock\".into()), distlock::metrics::BUCKETS)?" => builder
            .set_buckets_for_metric(Matcher::Prefix("distlock".into()), distlock::metrics::BUCKETS)
            .expect("bounds"),
        other => panic!("the manual calls {other}, which this test does not know"),
    })
}

/// Returns the metrics that the alerts query.
fn alerts() -> BTreeSet<String> {
    let rules = document("docs/operations/prometheus-alerts.yml");
    let queries = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "));
    let words =
        queries.flat_map(|query| query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    words
        .filter(|word| word.starts_with("distlock_"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn the_documented_exporter_has_the_metrics_of_the_alerts() {
    let exporter = builder().install_recorder().expect("the first exporter");
    let server = RedisServer::start();
    let locks = LockManager::connect(&server.url())
        .await
        .expect("a manager");
    let lock = locks
        .lock("nightly")
        .label("nightly")
        .lease(Duration::from_millis(600));
    let guard = lock.acquire().await.expect("a free lock");
    let renewed = async || exporter.render().contains("distlock_renewal_slack");
    eventually_async(LONG, renewed).await;
    guard.release().await.expect("a release");
    let released = async || exporter.render().contains("distlock_release_duration");
    eventually_async(LONG, released).await;

    // This series begins with the first success that is recorded.
    let job = locks.lock("job").once_per(LONG);
    let ran = job.run(async |_| Ok::<_, Error>(())).await;
    ran.expect("a free lock");
    let recorded = async || exporter.render().contains("distlock_success_records");
    eventually_async(LONG, recorded).await;

    // The service's own histograms are unchanged, and ours have buckets.
    metrics::histogram!("size_of_an_order").record(3.0);
    let text = exporter.render();
    assert!(
        text.contains("size_of_an_order{quantile") && !text.contains("order_bucket"),
        "{text}"
    );
    assert!(
        text.contains("distlock_acquire_duration_seconds_bucket"),
        "{text}"
    );
    let series: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("distlock_"))
        .collect();
    let names: BTreeSet<_> = series
        .iter()
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    let alerts = alerts();
    assert!(alerts.len() >= 9, "{alerts:?}");
    for metric in &alerts {
        assert!(names.contains(metric.as_str()), "no {metric} in\n{text}");
    }
    let of_lock = series
        .iter()
        .filter(|line| line.contains("lock=\"nightly\""))
        .count();
    println!(
        "{of_lock} lines of one lock, {} series, {} lines",
        series.len(),
        text.lines().count()
    );
    assert!(
        of_lock > 0 && of_lock <= 40,
        "{of_lock} lines of one idle lock:\n{text}"
    );
}
