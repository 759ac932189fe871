//! A service in operation: it logs, exports metrics for Prometheus, and shuts down on SIGTERM. Its
//! work is invented: orders that compete for a few items, a report without a queue, a job with a
//! limit, one that runs at most once per second, and a long import.
//!
//! `docs/operations/` has a dashboard and alerts for the metrics that it exports.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use distlock::{Error, LockManager, distributed_lock};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Time for the work in progress to end, before the shutdown stops it.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Works under locks until it receives SIGTERM or SIGINT.
// Not Debug: the URL may contain a password.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The store of the locks; a password belongs in DISTLOCK_PASSWORD.
    #[arg(
        long,
        env = "DISTLOCK_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6379"
    )]
    url: String,

    /// Where Prometheus finds the metrics: http://ADDRESS/metrics.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9898")]
    listen: SocketAddr,

    /// How many orders are fulfilled at a time.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    tasks: u16,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    // Before the first lock, because an unhandled SIGTERM ends the process and leaves its locks.
    let mut terminate = signal(SignalKind::terminate())?;
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    // Before the first manager, so that no metric is missed.
    PrometheusBuilder::new()
        .with_http_listener(options.listen)
        .with_recommended_naming(true)
        .set_buckets_for_metric(
            Matcher::Prefix("distlock".into()),
            distlock::metrics::BUCKETS,
        )?
        .install()
        .with_context(|| format!("--listen {}", options.listen))?;
    let locks = LockManager::builder().namespace("operated");
    distlock::install(locks.connect(&options.url).await?)?;
    println!("ready: http://{}/metrics", options.listen);

    let (stop, stopped) = watch::channel(false);
    let ms = Duration::from_millis;
    let mut work = JoinSet::new();
    for _ in 0..options.tasks {
        work.spawn(repeat(ms(20), stopped.clone(), |n| sell(n % 3)));
    }
    work.spawn(repeat(ms(200), stopped.clone(), |_| report("daily")));
    work.spawn(repeat(ms(150), stopped.clone(), |_| report("daily")));
    work.spawn(repeat(ms(500), stopped.clone(), settle));
    work.spawn(repeat(ms(200), stopped.clone(), |_| invoices()));
    work.spawn(repeat(ms(1_000), stopped, |_| import()));

    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    stop.send_replace(true);
    // The work ends first, under its locks. The import never ends by itself.
    let drained = async { while work.join_next().await.is_some() {} };
    let _ = timeout(DRAIN_TIMEOUT, drained).await;
    // Stops the remaining bodies, and releases the locks, so that no other process waits for their
    // leases.
    distlock::shutdown().await;
    work.shutdown().await;
    Ok(())
}

/// Repeats a job with a pause, until `stopped` becomes true.
async fn repeat<F: Future<Output = Result<(), Error>>>(
    pause: Duration,
    stopped: watch::Receiver<bool>,
    job: impl Fn(u64) -> F,
) {
    for n in 0.. {
        if *stopped.borrow() {
            return;
        }
        // Errors are in the log and in the metrics.
        let _ = job(n).await;
        sleep(pause).await;
    }
}

/// Many tasks compete for a few items.
#[distributed_lock(key = "inventory:<item>", lease = "2s", wait = "1s")]
async fn sell(item: u64) -> Result<(), Error> {
    tracing::debug!(item, "sold");
    sleep(Duration::from_millis(10)).await;
    Ok(())
}

/// One report at a time is enough; a second one is not queued.
#[distributed_lock(key = "report:<name>", lease = "2s", wait = "0s")]
async fn report(name: &str) -> Result<(), Error> {
    tracing::debug!(name, "reported");
    sleep(Duration::from_millis(120)).await;
    Ok(())
}

/// Every fourth run takes longer than `max_hold`.
#[distributed_lock(key = "settlement", lease = "2s", max_hold = "300ms")]
async fn settle(n: u64) -> Result<(), Error> {
    let is_slow = n.is_multiple_of(4);
    sleep(Duration::from_millis(if is_slow { 600 } else { 50 })).await;
    Ok(())
}

/// Runs at most once per second. Earlier calls are skipped.
#[distributed_lock(key = "invoices", lease = "2s", once_per = "1s", on_busy = "skip")]
async fn invoices() -> Result<(), Error> {
    sleep(Duration::from_millis(20)).await;
    Ok(())
}

/// Runs until its lock ends: by an outage, or by an operator with `distlock unlock import`.
#[distributed_lock(key = "import", lease = "2s", wait = "30s")]
async fn import() -> Result<(), Error> {
    println!("import begins: {}", distlock::current().fencing_token());
    loop {
        sleep(Duration::from_millis(50)).await;
    }
}
