//! The picture of a lock that is none.

use std::time::Duration;

use distlock::testing::TestLocks;
use tokio::sync::mpsc::unbounded_channel;

use super::{Setting, chart};
use crate::orders::{Item, Order, Shop};
use crate::report::Report;
use crate::service::Service;
use crate::stock::{MemoryStock, Stock};
use crate::tally::Tally;

const ITEM: Item = Item { id: 7, quantity: 9 };

/// Two orders for one item, each under a lock of its own; the one that began first writes last, and is repeated. None if it
/// is repeated more than once: the clocks of the two stores are as far apart as the moments at which they were made.
async fn without_exclusion() -> Option<Report> {
    let order = |id| Order {
        id,
        item_id: ITEM.id,
        quantity: 1,
    };
    let mut orders: Vec<Order> = (1..=20).map(order).collect();
    orders.sort_by_key(Order::thinking_time);
    let (quick, slow) = (orders[0], orders[19]);
    let shop = Shop {
        orders: vec![slow, quick],
        items: vec![ITEM],
    };

    let (events, mut said) = unbounded_channel();
    let stock = Stock::Memory(MemoryStock::new(&shop.items));
    let [first, second] = [TestLocks::new(), TestLocks::new()];
    // So that the second gets the higher token even within a microsecond.
    let manager = second.manager();
    let held = manager.lock("inventory:7").acquire().await.unwrap();
    held.release().await.unwrap();
    let work_off = async |number: usize, locks: TestLocks, order: Order| {
        let service = Service::new(stock.clone(), true, number, events.clone());
        distlock::with_manager(locks.manager(), service.work_off(&order)).await;
    };
    tokio::join!(work_off(0, first, slow), work_off(1, second, quick));
    let mut tally = Tally::new(&shop.orders);
    while let Ok(event) = said.try_recv() {
        tally.add(&event);
    }
    let levels = stock.levels(&shop.items).await.unwrap();
    let report = Report::new(true, &tally, &shop, &levels, Duration::ZERO, Vec::new());
    (tally.is_complete() && report.repeated == 1).then_some(report)
}

/// The fence keeps the stock right, and so hides from the numbers that both had the item.
#[tokio::test(start_paused = true)]
async fn a_lock_that_does_not_exclude_is_seen() {
    let mut report = None;
    for _ in 0..100 {
        report = without_exclusion().await;
        if report.is_some() {
            break;
        }
    }
    let report = report.expect("one of a hundred rounds with similar clocks");
    assert!(report.damage.is_none(), "{report:?}");
    let setting = Setting {
        place: "2 instances in this process".into(),
        worker: "instance",
        tasks: 1,
        orders: 2,
        items: 1,
    };
    let svg = chart(&setting, &[report]);
    for drawn in [
        "up to 2 calls have the item at the same time; no update is lost; refused or stopped: 1<",
        ">refused: a later holder has written<",
        "class=\"held w0 refused\"",
        "class=\"many\"",
    ] {
        assert!(svg.contains(drawn), "no {drawn}: {svg}");
    }
    // Beside the one that explains it.
    assert!(svg.matches("class=\"several\"").count() > 1, "{svg}");
}
