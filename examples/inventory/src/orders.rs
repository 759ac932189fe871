//! The orders and the stock of the shop: skewed as in real shops, and the same in every run.

use std::collections::BTreeMap;
use std::time::Duration;

const ORDERS: u64 = 3_000;
const ITEMS: u32 = 40;
const FIRST_ORDER: u64 = 100_001;

/// The item of most orders.
pub(crate) const MOST_WANTED: u32 = 1;

/// An order for pieces of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) id: u64,
    pub(crate) item_id: u32,
    pub(crate) quantity: u32,
}

impl Order {
    /// Returns the order with this id. Item k is ordered about 1/k times as often as item 1, and
    /// mostly one piece of it.
    pub(crate) fn with_id(id: u64) -> Self {
        let random = hash(id);
        let fraction = (random >> 32) as f64 / f64::from(u32::MAX);
        let item = f64::from(ITEMS + 1).powf(fraction) as u32;
        Order {
            id,
            item_id: item.min(ITEMS),
            quantity: match random % 100 {
                0..65 => 1,
                65..88 => 2,
                88..96 => 3,
                _ => 5,
            },
        }
    }

    /// Returns the working time of the service on this order: 1 to 3 ms, the same in every run.
    pub(crate) fn processing_time(&self) -> Duration {
        Duration::from_micros(1_000 + hash(!self.id) % 2_000)
    }
}

/// The finalizer of SplitMix64, as a source of numbers that look random.
fn hash(n: u64) -> u64 {
    let n = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

/// The orders and the stock of a run.
#[derive(Debug)]
pub(crate) struct Shop {
    pub(crate) orders: Vec<Order>,
    /// The initial quantity of each item.
    pub(crate) stock: BTreeMap<u32, u32>,
}

impl Shop {
    /// Generates all orders, and keeps the first `limit`. For a third of the items, the stock is
    /// smaller than the orders.
    pub(crate) fn generate(limit: Option<u32>) -> Self {
        let ids = FIRST_ORDER..FIRST_ORDER + ORDERS;
        let mut orders: Vec<_> = ids.map(Order::with_id).collect();
        let mut stock = BTreeMap::new();
        for order in &orders {
            *stock.entry(order.item_id).or_default() += order.quantity;
        }
        for (item, quantity) in &mut stock {
            let percent = if item % 3 == MOST_WANTED { 75 } else { 130 };
            *quantity = *quantity * percent / 100 + 1;
        }
        orders.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
        Shop { orders, stock }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_orders_are_for_one_item_and_some_items_sell_out() {
        let shop = Shop::generate(None);
        assert_eq!((shop.orders.len(), shop.stock.len()), (3_000, 40));
        let orders = |item| {
            shop.orders
                .iter()
                .filter(move |order| order.item_id == item)
        };
        let counts = shop.stock.keys().map(|item| orders(*item).count());
        assert_eq!(counts.max(), Some(orders(MOST_WANTED).count()));
        assert!(orders(MOST_WANTED).count() > 500);
        let ordered = |item| orders(item).map(|order| order.quantity).sum::<u32>();
        let sold_out = shop
            .stock
            .iter()
            .filter(|(item, left)| ordered(**item) > **left);
        assert!(sold_out.count() >= 10);
    }
}
