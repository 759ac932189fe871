//! The service: what the lock is for.

use std::time::{Duration, Instant};

use distlock::distributed_lock;
use tokio::sync::mpsc::UnboundedSender;

use crate::event::{Event, Outcome};
use crate::orders::Order;
use crate::stock::{Level, Stock, StockError};

/// The lease of [`reduce_stock`], for the report.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// For how much longer than the lease the server keeps a dead holder's lock.
pub(crate) const GRACE: Duration = Duration::from_millis(250);

/// After so many calls an order's failure is the run's.
const ATTEMPTS: u32 = 5;

/// One instance of the service. It finds its lock manager as every annotated function does: the
/// installed one, or that of `distlock::with_manager`.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    stock: Stock,
    locked: bool,
    events: UnboundedSender<Event>,
}

/// Why an order was not worked off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    #[error(transparent)]
    Lock(#[from] distlock::Error),
    #[error(transparent)]
    Stock(#[from] StockError),
}

impl ServiceError {
    /// Whether the same call may succeed later. That is safe even if the write has happened: the
    /// body asks first whether its order is fulfilled.
    fn may_be_repeated(&self) -> bool {
        match self {
            ServiceError::Lock(error) => error.is_busy() || error.is_lost(),
            ServiceError::Stock(error) => matches!(error, StockError::Stale { .. }),
        }
    }
}

/// Reduces the stock of an item, alone with it.
#[distributed_lock(key = "inventory:<item_id>", lease = "2s", wait = "10s")]
async fn reduce_stock(
    service: &Service,
    item_id: u32,
    order: &Order,
    called: Instant,
) -> Result<Outcome, ServiceError> {
    reduce(service, order, called).await
}

/// The same without the attribute.
async fn reduce_stock_unlocked(
    service: &Service,
    order: &Order,
    called: Instant,
) -> Result<Outcome, ServiceError> {
    reduce(service, order, called).await
}

/// The body of both: read, think, write back.
async fn reduce(
    service: &Service,
    order: &Order,
    called: Instant,
) -> Result<Outcome, ServiceError> {
    let token = distlock::try_current().map(|held| held.fencing_token());
    service.tell(Event::Started {
        order: order.id,
        waited: called.elapsed(),
        token: token.map(u64::from),
    });

    let seen = service.stock.look(order).await?;
    if seen.fulfilled {
        return Ok(Outcome::Fulfilled);
    }
    tokio::time::sleep(order.thinking_time()).await;
    let Some(left) = seen.level.quantity.checked_sub(order.quantity) else {
        return Ok(Outcome::Rejected);
    };
    let level = Level {
        quantity: left,
        updates: seen.level.updates + 1,
    };
    service.stock.reduce(order, level, token).await?;
    Ok(Outcome::Fulfilled)
}

impl Service {
    pub(crate) fn new(stock: Stock, locked: bool, events: UnboundedSender<Event>) -> Self {
        Service {
            stock,
            locked,
            events,
        }
    }

    /// Works off one order, and says how it ended.
    pub(crate) async fn work_off(&self, order: &Order) {
        for attempt in 1.. {
            let called = Instant::now();
            let result = if self.locked {
                reduce_stock(self, order.item_id, order, called).await
            } else {
                reduce_stock_unlocked(self, order, called).await
            };
            let order = order.id;
            match result {
                Ok(outcome) => return self.tell(Event::Finished { order, outcome }),
                Err(error) if error.may_be_repeated() && attempt < ATTEMPTS => {
                    let why = error.to_string();
                    self.tell(Event::Repeated { order, why });
                }
                Err(error) => {
                    let message = format!("order {order}: {error}");
                    return self.tell(Event::Failed { message });
                }
            }
        }
    }

    fn tell(&self, event: Event) {
        // Nobody listens any more when the run was given up.
        let _ = self.events.send(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orders::Item;
    use crate::stock::MemoryStock;
    use distlock::LockManager;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    const ORDER: Order = Order {
        id: 5,
        item_id: 7,
        quantity: 2,
    };

    fn service(locked: bool) -> (Service, UnboundedReceiver<Event>) {
        let stock = MemoryStock::new(&[Item { id: 7, quantity: 3 }]);
        let (events, said) = unbounded_channel();
        (Service::new(Stock::Memory(stock), locked, events), said)
    }

    #[test]
    fn the_report_knows_the_lease_of_the_attribute() {
        let lease = format!("lease = \"{}s\"", LEASE.as_secs());
        assert!(include_str!("service.rs").contains(&lease), "{lease}");
    }

    #[tokio::test]
    async fn an_order_that_is_given_out_twice_reduces_the_stock_once() {
        let (service, mut said) = service(true);
        let locks = LockManager::memory();
        distlock::with_manager(locks, async {
            service.work_off(&ORDER).await;
            service.work_off(&ORDER).await;
        })
        .await;
        let mut tokens = Vec::new();
        let mut fulfilled = 0;
        while let Ok(event) = said.try_recv() {
            match event {
                Event::Started { token, .. } => tokens.push(token.unwrap()),
                Event::Finished { outcome, .. } => {
                    assert_eq!(outcome, Outcome::Fulfilled);
                    fulfilled += 1;
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!(fulfilled, 2);
        assert!(tokens[0] < tokens[1], "{tokens:?}");
        let left = service.stock.look(&ORDER).await.unwrap().level;
        assert_eq!(
            left,
            Level {
                quantity: 1,
                updates: 1
            }
        );
    }

    #[tokio::test]
    async fn an_order_for_more_than_there_is_is_rejected() {
        let (service, mut said) = service(false);
        let order = Order {
            quantity: 4,
            ..ORDER
        };
        service.work_off(&order).await;
        let mut last = None;
        while let Ok(event) = said.try_recv() {
            last = Some(event);
        }
        let rejected = Event::Finished {
            order: 5,
            outcome: Outcome::Rejected,
        };
        assert_eq!(last, Some(rejected));
        assert_eq!(service.stock.look(&order).await.unwrap().level.quantity, 3);
    }

    #[tokio::test]
    async fn without_a_manager_the_locked_call_fails_and_says_what_to_do() {
        let (service, mut said) = service(true);
        service.work_off(&ORDER).await;
        match said.try_recv().unwrap() {
            Event::Failed { message } => {
                assert!(message.contains("distlock::install"), "{message}")
            }
            other => panic!("{other}"),
        }
    }
}
