//! The worker process: connects its subject once, and runs a round at every request.

mod bare;
mod hand_off;
mod hold;
mod kinds;
mod load;
mod manager;
mod notify;
pub(crate) mod order;
pub(crate) mod postgres;
mod scripts;
mod tables;

use anyhow::{bail, ensure};

use bare::{Bare, PingThread};
use hand_off::HandOff;
use hold::Hold;
use kinds::Kinds;
use load::serve_locker;
use manager::{Distlock, Permits};
use notify::Notify;
use order::{Load, Order, serve};
use postgres::{Advisory, RowLock, Update};
use scripts::Scripts;
use tables::Tables;

pub(crate) const DISTLOCK: &str = "distlock";
/// distlock's semaphores, with one permit.
pub(crate) const PERMITS: &str = "distlock permits";
pub(crate) const BARE: &str = "bare";
/// A durable update of one row in PostgreSQL.
pub(crate) const UPDATE: &str = "durable update";
pub(crate) const ADVISORY: &str = "pg_advisory_lock";
pub(crate) const TRY_ADVISORY: &str = "pg_try_advisory_lock each 10 ms";
pub(crate) const ROW_LOCK: &str = "SELECT FOR UPDATE";

pub(crate) fn run() -> anyhow::Result<()> {
    let order = Order::read()?;
    order.place.run(async move {
        match order.locker.as_str() {
            DISTLOCK => serve_distlock(order).await,
            PERMITS => {
                serve_locker(order.load, |_| {
                    let order = order.clone();
                    async move { Permits::connect(&order).await }
                })
                .await
            }
            BARE => serve_bare(order).await,
            UPDATE => serve_update(order).await,
            ADVISORY => serve_locker(order.load, |_| Advisory::connect(&order.url, true)).await,
            TRY_ADVISORY => {
                serve_locker(order.load, |_| Advisory::connect(&order.url, false)).await
            }
            ROW_LOCK => serve_locker(order.load, |_| RowLock::connect(&order.url)).await,
            unknown => bail!("no such locker: `{unknown}`"),
        }
    })
}

async fn serve_distlock(order: Order) -> anyhow::Result<()> {
    match order.load {
        Load::HandOff { waiters, count } => {
            serve(HandOff::connect(&order, waiters, count).await?).await
        }
        Load::Kind { kind, window } => {
            let locker = Distlock::connect(&order, 0).await?;
            serve(Kinds {
                locker,
                kind,
                window,
            })
            .await
        }
        Load::Hold { locks, time } => serve(Hold::connect(&order, locks, Some(time)).await?).await,
        Load::Drop { locks } => serve(Hold::connect(&order, locks, None).await?).await,
        Load::Tables { pairs } => serve(Tables::connect(&order, pairs).await?).await,
        Load::Scripts { entries } => serve(Scripts::connect(&order, entries).await?).await,
        load => {
            serve_locker(load, |client| {
                let order = order.clone();
                async move { Distlock::connect(&order, client).await }
            })
            .await
        }
    }
}

async fn serve_bare(order: Order) -> anyhow::Result<()> {
    ensure!(order.max_runtime_connections.is_none() && order.ca_file.is_none());
    match order.load {
        Load::Ping { count } => serve(PingThread::connect(&order.url, count).await?).await,
        load => {
            serve_locker(load, |client| {
                let url = order.url.clone();
                async move { Bare::connect(&url, client).await }
            })
            .await
        }
    }
}

async fn serve_update(order: Order) -> anyhow::Result<()> {
    match order.load {
        Load::Notify { count } => serve(Notify::connect(&order.url, count).await?).await,
        load => serve_locker(load, |_| Update::connect(&order.url)).await,
    }
}
