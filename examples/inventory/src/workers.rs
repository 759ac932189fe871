//! Several service processes, and how the orders of one that dies go to the others.
//!
//! Each process has a few orders in hand and gets the next one when it has finished one. An order
//! whose process died may or may not have reached the stock. It is given to another process in either
//! case, because the write marks the order as fulfilled in the same atomic step, and the body asks
//! for that mark first.

mod pool;
mod process;

use std::time::{Instant, SystemTime};

use anyhow::{Context as _, Result, bail};

use crate::orders::Shop;
use crate::report::Report;
use crate::stock::{RedisStock, Stock};
use crate::store::{NAMESPACE, StoreOptions};

/// What to run.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) store: StoreOptions,
    pub(crate) locked: bool,
    pub(crate) processes: usize,
    /// How many orders a process has in hand.
    pub(crate) tasks: usize,
    pub(crate) kill_one: bool,
}

/// The user wants to stop.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; the stock of this run was deleted from Redis")]
pub(crate) struct Interrupted;

/// Finds out whether the store can be used, before processes are started.
pub(crate) async fn check_store(store: &StoreOptions) -> Result<()> {
    match store.locks().connect().await {
        Ok(manager) => {
            manager.shutdown().await;
            Ok(())
        }
        Err(error) if error.is_unavailable() => bail!(
            "{error}\nIs a server running there? Start one with `redis-server`, name another with --store, \
             or leave --store away to run in memory."
        ),
        Err(error) => Err(error.into()),
    }
}

/// Works off all orders with several processes.
pub(crate) async fn run(shop: &Shop, plan: &Plan) -> Result<Report> {
    let key = stock_key(plan.locked);
    let stock = RedisStock::connect(&plan.store, &key).await?;
    stock.fill(&shop.items).await?;
    let result = tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => Err(Interrupted.into()),
        result = work_off(shop, plan, &key, &stock) => result,
    };
    // By now all processes were told to end, or killed. The run's own error matters more.
    let deleted = stock.delete().await;
    let report = result?;
    deleted.context("cannot delete the stock of this run; it expires in an hour")?;
    Ok(report)
}

async fn work_off(shop: &Shop, plan: &Plan, key: &str, stock: &RedisStock) -> Result<Report> {
    let mut pool = pool::Pool::start(shop, plan, key).await?;
    let started = Instant::now();
    pool.work_off().await?;
    let time = started.elapsed();
    let (tally, casualties) = pool.end().await;
    let levels = Stock::Redis(stock.clone()).levels(&shop.items).await?;
    Ok(Report::new(
        plan.locked,
        &tally,
        shop,
        &levels,
        time,
        casualties,
    ))
}

/// A key that no other run has.
fn stock_key(locked: bool) -> String {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_micros());
    let run = if locked { "locked" } else { "unlocked" };
    format!("{NAMESPACE}:stock:{now:x}-{}-{run}", std::process::id())
}
