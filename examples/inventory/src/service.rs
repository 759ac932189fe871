//! The service: what the lock is for.

use std::time::Duration;

use distlock::{FencingToken, distributed_lock};
use tokio::sync::mpsc::UnboundedSender;

use crate::call::{Call, End};
use crate::clock;
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
    /// Which instance or process this is.
    number: usize,
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
    called: Duration,
) -> Result<Outcome, ServiceError> {
    reduce(service, order, called).await
}

/// The same without the attribute.
async fn reduce_stock_unlocked(
    service: &Service,
    order: &Order,
    called: Duration,
) -> Result<Outcome, ServiceError> {
    reduce(service, order, called).await
}

/// The body of both, and when it was.
async fn reduce(
    service: &Service,
    order: &Order,
    called: Duration,
) -> Result<Outcome, ServiceError> {
    let token = distlock::try_current().map(|held| held.fencing_token());
    let began = clock::now();
    service.tell(Event::Started {
        order: order.id,
        waited: began.saturating_sub(called),
        token: token.map(u64::from),
    });
    let mut body = Body {
        service,
        order,
        called,
        began,
        end: End::Stopped,
    };
    let sold = sell(service, order, token).await;
    body.end = match &sold {
        Ok((_, Some(level))) => End::Wrote(*level),
        Ok((_, None)) => End::WroteNothing,
        Err(StockError::Stale { .. }) => End::Refused,
        Err(_) => End::Stopped,
    };
    Ok(sold?.0)
}

/// A body that has begun. It tells of itself when it is dropped, for the lock drops it where it is when it is lost: who left those
/// out would not see two that had the item at the same time.
struct Body<'a> {
    service: &'a Service,
    order: &'a Order,
    called: Duration,
    began: Duration,
    end: End,
}

impl Drop for Body<'_> {
    fn drop(&mut self) {
        self.service.tell(Event::Worked(Call {
            order: *self.order,
            worker: self.service.number,
            called: self.called,
            began: self.began,
            ended: clock::now(),
            end: self.end,
        }));
    }
}

/// Read, think, write back. Tells what it wrote.
async fn sell(
    service: &Service,
    order: &Order,
    token: Option<FencingToken>,
) -> Result<(Outcome, Option<Level>), StockError> {
    let seen = service.stock.look(order).await?;
    if seen.fulfilled {
        return Ok((Outcome::Fulfilled, None));
    }
    tokio::time::sleep(order.thinking_time()).await;
    let Some(left) = seen.level.quantity.checked_sub(order.quantity) else {
        return Ok((Outcome::Rejected, None));
    };
    let level = Level {
        quantity: left,
        updates: seen.level.updates + 1,
    };
    service.stock.reduce(order, level, token).await?;
    Ok((Outcome::Fulfilled, Some(level)))
}

impl Service {
    pub(crate) fn new(
        stock: Stock,
        locked: bool,
        number: usize,
        events: UnboundedSender<Event>,
    ) -> Self {
        Service {
            stock,
            locked,
            number,
            events,
        }
    }

    /// Works off one order, and says how it ended.
    pub(crate) async fn work_off(&self, order: &Order) {
        for attempt in 1.. {
            let called = clock::now();
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
    use distlock::Outage;
    use distlock::testing::{Loss, TestLocks, assert_not_locked, error, holder};
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    const ORDER: Order = Order {
        id: 5,
        item_id: 7,
        quantity: 2,
    };

    fn service(locked: bool) -> (Service, UnboundedReceiver<Event>) {
        let stock = MemoryStock::new(&[Item { id: 7, quantity: 3 }]);
        let (events, said) = unbounded_channel();
        (Service::new(Stock::Memory(stock), locked, 0, events), said)
    }

    #[test]
    fn the_report_knows_the_lease_of_the_attribute() {
        let lease = format!("lease = \"{}s\"", LEASE.as_secs());
        assert!(include_str!("service.rs").contains(&lease), "{lease}");
    }

    /// Works off the order with these locks: what the service says, without its calls, and what is left.
    async fn work_off(locks: &TestLocks) -> (Vec<Event>, Level) {
        let (events, _, left) = worked_off(locks).await;
        (events, left)
    }

    /// The same, with how its bodies ended.
    async fn worked_off(locks: &TestLocks) -> (Vec<Event>, Vec<End>, Level) {
        let (service, mut said) = service(true);
        distlock::with_manager(locks.manager(), service.work_off(&ORDER)).await;
        let (mut events, mut ends) = (Vec::new(), Vec::new());
        while let Ok(event) = said.try_recv() {
            match event {
                Event::Started { .. } => {}
                Event::Worked(call) => ends.push(call.end),
                event => events.push(event),
            }
        }
        assert_not_locked!(locks, "inventory:7", "an order that is done is done");
        let left = service.stock.look(&ORDER).await.unwrap().level;
        (events, ends, left)
    }

    const FULFILLED: Event = Event::Finished {
        order: 5,
        outcome: Outcome::Fulfilled,
    };

    const UNTOUCHED: Level = Level {
        quantity: 3,
        updates: 0,
    };

    const REDUCED: Level = Level {
        quantity: 1,
        updates: 1,
    };

    #[tokio::test(start_paused = true)]
    async fn an_item_that_is_busy_is_asked_for_again() {
        let locks = TestLocks::new();
        locks.on("inventory:7").times(2).busy(holder("worker-2"));
        let (events, left) = work_off(&locks).await;
        let [Event::Repeated { why, .. }, Event::Repeated { .. }, last] = &events[..] else {
            panic!("{events:?}");
        };
        assert!(why.contains("held by worker-2"), "{why}");
        assert_eq!((last, left), (&FULFILLED, REDUCED));
        assert_eq!(locks.acquired("inventory:7"), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_item_that_stays_busy_fails_the_run() {
        let locks = TestLocks::new();
        locks
            .on_label("inventory:<item_id>")
            .busy(holder("worker-2"));
        let (events, left) = work_off(&locks).await;
        assert_eq!(events.len(), ATTEMPTS as usize, "{events:?}");
        let Some(Event::Failed { message }) = events.last() else {
            panic!("{events:?}");
        };
        assert!(
            message.starts_with("order 5: lock `inventory:7` is busy"),
            "{message}"
        );
        assert_eq!(left, UNTOUCHED);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_away_fails_the_run() {
        let locks = TestLocks::new();
        locks.on_all().unavailable(Outage::Unreachable);
        let (events, left) = work_off(&locks).await;
        let [Event::Failed { message }] = &events[..] else {
            panic!("{events:?}");
        };
        assert!(
            message.contains("the lock store is unavailable"),
            "{message}"
        );
        assert_eq!(left, UNTOUCHED);
        // One that comes back in time is not noticed.
        locks.clear();
        locks
            .on_all()
            .for_the_next(Duration::from_secs(8))
            .unavailable(Outage::Unreachable);
        assert_eq!(work_off(&locks).await, (vec![FULFILLED], REDUCED));
    }

    /// Whether it was stopped before its write, or had written: the order is repeated, and the stock reduced once.
    #[tokio::test(start_paused = true)]
    async fn an_order_whose_lock_was_lost_is_repeated_and_reduces_the_stock_once() {
        for how in [Loss::Gone, Loss::Deleted] {
            let locks = TestLocks::new();
            locks
                .on("inventory:7")
                .once()
                .lost_after(Duration::ZERO, how);
            let (events, ends, left) = worked_off(&locks).await;
            let [Event::Repeated { why, .. }, last] = &events[..] else {
                panic!("{events:?}");
            };
            let (work, expected) = match how {
                Loss::Gone => ("its body was stopped", [End::Stopped, End::Wrote(REDUCED)]),
                _ => (
                    "the work under it had been done",
                    [End::Wrote(REDUCED), End::WroteNothing],
                ),
            };
            assert_eq!(ends, expected);
            assert!(why.contains("was lost") && why.contains(work), "{why}");
            assert_eq!((last, left), (&FULFILLED, REDUCED));
            assert_eq!(locks.acquired("inventory:7"), 2);
        }
    }

    /// A misuse does not go away, and neither does an outage that outlasted the wait.
    #[test]
    fn only_what_others_did_is_repeated() {
        for error in error::all("inventory:7") {
            let expected = error.is_busy() || error.is_lost();
            let error = ServiceError::from(error);
            assert_eq!(error.may_be_repeated(), expected, "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_that_is_given_out_twice_reduces_the_stock_once() {
        let (service, mut said) = service(true);
        let locks = TestLocks::new();
        distlock::with_manager(locks.manager(), async {
            service.work_off(&ORDER).await;
            service.work_off(&ORDER).await;
        })
        .await;
        let mut tokens = Vec::new();
        let mut writes = Vec::new();
        let mut fulfilled = 0;
        while let Ok(event) = said.try_recv() {
            match event {
                Event::Started { token, .. } => tokens.push(token.unwrap()),
                Event::Worked(call) => writes.push(call.wrote()),
                Event::Finished { outcome, .. } => {
                    assert_eq!(outcome, Outcome::Fulfilled);
                    fulfilled += 1;
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!(fulfilled, 2);
        assert_eq!(writes, [Some(REDUCED), None]);
        assert!(tokens[0] < tokens[1], "{tokens:?}");
        let known = locks.acquisitions();
        let known = known.iter().map(|known| u64::from(known.fencing_token));
        assert!(known.eq(tokens), "under the tokens of its locks");
        let left = service.stock.look(&ORDER).await.unwrap().level;
        assert_eq!(left, REDUCED);
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
