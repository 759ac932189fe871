//! A service as it is operated: it logs, exports metrics for Prometheus, and ends tidily on SIGTERM. What it does under its locks
//! is made up: orders that compete for a few items, a report that nobody waits for, a job with a limit, and a long import.
//!
//! `docs/operations/` has a dashboard and alerts for what it exports.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use distlock::{Error, LockManager, distributed_lock};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// Works under locks until it is told to stop (SIGTERM, SIGINT).
// Not Debug: the URL may contain a password.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// The store of the locks; a password belongs into DISTLOCK_PASSWORD.
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

    /// How many orders are worked off at a time.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    tasks: u16,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    // Before the first manager, so that nothing is missed.
    PrometheusBuilder::new()
        .with_http_listener(options.listen)
        .with_recommended_naming(true)
        .set_buckets(distlock::metrics::BUCKETS)?
        .install()
        .with_context(|| format!("--listen {}", options.listen))?;
    let locks = LockManager::builder()
        .url(&options.url)
        .namespace("operated");
    distlock::install(locks.connect().await?)?;
    println!("ready: http://{}/metrics", options.listen);

    let mut work = JoinSet::new();
    for task in 0..options.tasks {
        work.spawn(each(Duration::from_millis(20), move |n| sell(n % 3, task)));
    }
    work.spawn(each(Duration::from_millis(200), |_| report("daily")));
    work.spawn(each(Duration::from_millis(150), |_| report("daily")));
    work.spawn(each(Duration::from_millis(500), |_| settle()));
    let ledger = Arc::<Ledger>::default();
    work.spawn(each(Duration::from_secs(1), move |_| {
        import(ledger.clone())
    }));

    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    // Bodies stop and locks are released: nobody waits for the leases of a process that ends so.
    distlock::shutdown().await;
    work.shutdown().await;
    Ok(())
}

/// Does something again and again, with a pause.
async fn each<F: Future<Output = Result<(), Error>>>(pause: Duration, work: impl Fn(u64) -> F) {
    for n in 0.. {
        match work(n).await {
            Err(Error::ShutDown { .. }) => return,
            // Each is in the log and in the metrics.
            Ok(()) | Err(_) => tokio::time::sleep(pause).await,
        }
    }
}

/// Many want the same few items.
#[distributed_lock(key = "inventory:<item>", lease = "2s", wait = "1s")]
async fn sell(item: u64, _task: u16) -> Result<(), Error> {
    tokio::time::sleep(Duration::from_millis(10)).await;
    Ok(())
}

/// One of them is enough, and nobody waits for it.
#[distributed_lock(key = "report:<name>", lease = "2s", wait = "0s")]
async fn report(name: &str) -> Result<(), Error> {
    tokio::time::sleep(Duration::from_millis(120)).await;
    Ok(())
}

/// Now and then it takes longer than it may.
#[distributed_lock(key = "settlement", lease = "2s", max_hold = "300ms")]
async fn settle() -> Result<(), Error> {
    static TURN: AtomicU64 = AtomicU64::new(0);
    let takes = if TURN.fetch_add(1, Ordering::Relaxed).is_multiple_of(4) {
        600
    } else {
        50
    };
    tokio::time::sleep(Duration::from_millis(takes)).await;
    Ok(())
}

/// A resource that knows the newest token it was told, and refuses older ones.
#[derive(Debug, Default)]
struct Ledger(AtomicU64);

impl Ledger {
    fn write(&self, token: u64) -> bool {
        self.0.fetch_max(token, Ordering::AcqRel) <= token
    }
}

/// It runs until it is stopped: by its end, by an outage, or by an operator with `distlock unlock import`.
#[distributed_lock(key = "import", lease = "2s", wait = "30s")]
async fn import(ledger: Arc<Ledger>) -> Result<(), Error> {
    let held = distlock::current();
    // An import takes longer than the second for which a lock that was handed over is granted.
    held.confirmed().await?;
    let token = held.fencing_token().get();
    println!("import begins: {token}");
    // Also where it is stopped: by being dropped at an await.
    let _end = Told(token);
    loop {
        let written = held.is_held() && ledger.write(token);
        println!(
            "import writes: {token} {}",
            if written { "written" } else { "refused" }
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Says that an import is over.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        println!("import ends: {}", self.0);
    }
}
