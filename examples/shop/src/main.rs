//! One replica of the shop. `DATABASE_URL` names its database, `LOCKS_URL` the store of its locks,
//! and `LISTEN` its own address (by default 127.0.0.1:8080). SIGTERM and SIGINT shut it down gracefully.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use shop::shop::Shop;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Time for requests in flight: more than the `wait` and the `max_hold` of an order together. With
/// both `CLOSE`s, and without a preStop hook, it is less than the 30 seconds after which Kubernetes
/// kills a process.
const GRACE: Duration = Duration::from_secs(18);
/// Time for the locks to close, and then for the database.
const CLOSE: Duration = Duration::from_secs(4);

#[tokio::main]
async fn main() -> Result<()> {
    // First, because an unhandled signal kills the process and leaves its locks.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    // Before the first manager, so that no metric is missed.
    let metrics = PrometheusBuilder::new()
        .with_recommended_naming(true)
        .set_buckets_for_metric(
            Matcher::Prefix("distlock".into()),
            distlock::metrics::BUCKETS,
        )?
        .install_recorder()?;
    tokio::spawn(upkeep(metrics.clone()));

    let locks = shop::connect_locks(&setting("LOCKS_URL")?).await?;
    let database = connect(&setting("DATABASE_URL")?).await?;
    let shop = Shop::new(locks.clone(), database.clone());
    shop.create_tables().await?;

    let app = shop::http::router(shop).route("/metrics", get(async move || metrics.render()));
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&listen)
        .await
        .with_context(|| format!("LISTEN={listen}"))?;
    println!("listening on http://{}", listener.local_addr()?);

    let (end, ending) = oneshot::channel();
    let server = axum::serve(listener, app).with_graceful_shutdown(async {
        // A dropped sender also ends the server.
        let _ = ending.await;
    });
    let mut server = tokio::spawn(server.into_future());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }

    tracing::info!("no more requests are taken");
    let _ = end.send(());
    match timeout(GRACE, &mut server).await {
        Ok(served) => served??,
        Err(_) => {
            tracing::warn!("requests are still under way after {GRACE:?}, and are given up");
            server.abort();
        }
    }
    // After the requests, which need their locks. Stops remaining bodies, and releases all locks.
    if timeout(CLOSE, locks.shutdown()).await.is_err() {
        tracing::warn!("locks are left to their leases");
    }
    if timeout(CLOSE, database.close()).await.is_err() {
        tracing::warn!("connections are left to the database");
    }
    Ok(())
}

fn setting(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| {
        format!("set {name}, or run this under `servers.sh`, which starts servers for it")
    })
}

async fn connect(url: &str) -> Result<PgPool> {
    // An abandoned statement, or a paused replica's transaction, does not block its rows for
    // longer. Less than the `max_hold` of an order, so that a slow database has its own error.
    let options = url.parse::<PgConnectOptions>()?.options([
        ("client_min_messages", "warning"),
        ("statement_timeout", "4s"),
        ("idle_in_transaction_session_timeout", "4s"),
    ]);
    PgPoolOptions::new()
        .acquire_timeout(Duration::from_secs(3))
        .connect_with(options)
        .await
        .context("DATABASE_URL")
}

/// Drains the histograms, which would otherwise grow until they are read.
async fn upkeep(metrics: PrometheusHandle) {
    let mut every = tokio::time::interval(Duration::from_secs(5));
    loop {
        every.tick().await;
        metrics.run_upkeep();
    }
}
