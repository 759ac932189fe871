//! Several service instances in this process, each with its own lock manager on a shared store.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Result, bail};
use distlock::LockManager;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

use crate::event::Event;
use crate::orders::{Order, Shop};
use crate::progress::{Progress, TICK};
use crate::report::{Report, title};
use crate::service::Service;
use crate::stock::{MemoryStock, Stock};
use crate::tally::Tally;

/// Works off all orders with `instances` times `tasks` tasks.
pub(crate) async fn run(
    shop: &Shop,
    url: &str,
    locked: bool,
    instances: usize,
    tasks: usize,
) -> Result<Report> {
    let stock = Stock::Memory(MemoryStock::new(&shop.items));
    let queue = Arc::new(Mutex::new(VecDeque::from(shop.orders.clone())));
    let (events, mut said) = unbounded_channel();
    let mut managers = Vec::new();
    for _ in 0..instances {
        managers.push(LockManager::connect(url).await?);
    }

    let started = Instant::now();
    let mut work = JoinSet::new();
    for (number, manager) in managers.iter().enumerate() {
        let service = Service::new(stock.clone(), locked, number, events.clone());
        for _ in 0..tasks {
            let task = work_off(service.clone(), queue.clone());
            work.spawn(distlock::with_manager(manager.clone(), task));
        }
    }
    drop(events);
    let tally = follow(&shop.orders, locked, &mut said).await?;
    let time = started.elapsed();

    work.join_all().await;
    for manager in managers {
        manager.shutdown().await;
    }
    let levels = stock.levels(&shop.items).await?;
    Ok(Report::new(locked, &tally, shop, &levels, time, Vec::new()))
}

async fn work_off(service: Service, queue: Arc<Mutex<VecDeque<Order>>>) {
    let next = || {
        queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    };
    while let Some(order) = next() {
        service.work_off(&order).await;
    }
}

/// Listens until all orders are finished.
async fn follow(
    orders: &[Order],
    locked: bool,
    said: &mut UnboundedReceiver<Event>,
) -> Result<Tally> {
    let mut tally = Tally::new(orders);
    let mut progress = Progress::new(title(locked));
    let mut tick = tokio::time::interval(TICK);
    while !tally.is_complete() {
        tokio::select! {
            event = said.recv() => match event {
                Some(Event::Failed { message }) => bail!(message),
                Some(event) => tally.add(&event),
                None => bail!("the services ended before their work did"),
            },
            _ = tick.tick() => progress.tick(&tally),
        }
    }
    progress.end(&tally);
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orders::Item;

    fn rush() -> Shop {
        let order = |id: u64| Order {
            id,
            item_id: 1 + (id % 3) as u32,
            quantity: 1,
        };
        Shop {
            orders: (0..240).map(order).collect(),
            items: [(1, 60), (2, 200), (3, 200)]
                .map(|(id, quantity)| Item { id, quantity })
                .to_vec(),
        }
    }

    #[tokio::test]
    async fn without_the_lock_updates_are_lost() {
        let report = run(&rush(), "memory:lost", false, 2, 8).await.unwrap();
        assert!(report.damage.lost_updates > 0, "{report:?}");
        assert_eq!(report.fulfilled + report.rejected, 240);
        assert_eq!(report.highest_token, None);
    }

    #[tokio::test]
    async fn with_the_lock_none_is() {
        let report = run(&rush(), "memory:kept", true, 2, 8).await.unwrap();
        assert!(report.damage.is_none(), "{report:?}");
        assert_eq!((report.fulfilled, report.rejected), (220, 20));
        assert!(
            report.highest_token.is_some() && report.waits.is_some(),
            "{report:?}"
        );
    }
}
