//! The chart of a lock that does not exclude: the fence keeps the stock right, and so hides the
//! overlap from the table.

use std::collections::BTreeMap;
use std::time::Duration;

use super::draw;
use crate::ledger::{Call, Ledger};
use crate::orders::{Order, Shop};
use crate::report::Report;

#[test]
fn an_overlap_and_a_rejected_write_are_drawn() {
    let at = Duration::from_millis;
    let order = |id| Order {
        id,
        item_id: 7,
        quantity: 1,
    };
    let shop = Shop {
        orders: vec![order(1), order(2)],
        stock: BTreeMap::from([(7, 9)]),
    };
    let mut ledger = Ledger::new(&shop, None);
    let (first, _) = ledger.read(Call::new(order(1), 1, at(0), at(1)), 5);
    let (second, _) = ledger.read(Call::new(order(2), 2, at(0), at(3)), 6);
    assert!(!ledger.write(first, 8, 5, at(4)));
    assert!(ledger.write(second, 8, 6, at(5)));
    let (again, _) = ledger.read(Call::new(order(1), 1, at(4), at(6)), 7);
    assert!(ledger.write(again, 7, 7, at(8)));
    ledger.finish(order(1), true);
    ledger.finish(order(2), true);
    let report = Report::new(true, &shop, &ledger);
    assert!(!report.is_wrong(), "{report:?}");
    let svg = draw("2 orders for 1 item", &[report]);
    for expected in [
        "up to 2 calls use the item at the same time; no update is lost; rejected or stopped: 1<",
        ">rejected by the fence<",
        ">9 → 8<",
        ">8 → 7<",
        "class=\"overlap\"",
        "class=\"several\"",
    ] {
        assert!(svg.contains(expected), "no {expected}: {svg}");
    }
}
