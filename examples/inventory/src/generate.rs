//! Makes the order file and the stock: skewed as real shops are, the same for the same seed.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use anyhow::{Context as _, Result};

use crate::cli::GenerateOptions;
use crate::orders::{Item, ORDERS_HEADER, Order, STOCK_HEADER, Shop};

pub(crate) const SEED: u64 = 2026;
pub(crate) const ORDERS: u32 = 3_000;
pub(crate) const ITEMS: u32 = 40;

const FIRST_ORDER: u64 = 100_001;
const FIRST_ITEM: u32 = 1;

/// `inventory generate`.
pub(crate) fn main(options: &GenerateOptions) -> Result<()> {
    let shop = shop(options.seed, options.orders, options.items);
    let files = [
        ("orders.csv", table(ORDERS_HEADER, &shop.orders)),
        ("stock.csv", table(STOCK_HEADER, &shop.items)),
    ];
    for (name, text) in files {
        let path = options.out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Orders whose items follow Zipf's law: the k-th most popular is wanted 1/k times as often as the
/// first. A third of the items has less in stock than is wanted.
fn shop(seed: u64, orders: u32, items: u32) -> Shop {
    let mut random = Random(seed);
    let by_popularity = shuffled(items, &mut random);
    let upto = cumulative_weights(items);
    let total = upto.last().copied().unwrap_or(1);

    let orders: Vec<Order> = (0..u64::from(orders))
        .map(|n| {
            let drawn = random.below(total);
            let rank = upto.partition_point(|&end| end <= drawn);
            Order {
                id: FIRST_ORDER + n,
                item_id: by_popularity[rank],
                quantity: quantity(&mut random),
            }
        })
        .collect();

    let mut wanted = BTreeMap::<u32, u32>::new();
    for order in &orders {
        *wanted.entry(order.item_id).or_default() += order.quantity;
    }
    let mut items: Vec<Item> = by_popularity
        .iter()
        .zip(0..)
        .map(|(&id, rank)| {
            let wanted = wanted.get(&id).copied().unwrap_or(0);
            let percent = if rank % 3 == 0 { 75 } else { 130 };
            Item {
                id,
                quantity: wanted * percent / 100 + 1,
            }
        })
        .collect();
    items.sort_by_key(|item| item.id);
    Shop { orders, items }
}

/// Most people want one, few want many.
fn quantity(random: &mut Random) -> u32 {
    match random.below(100) {
        0..65 => 1,
        65..88 => 2,
        88..96 => 3,
        _ => 5,
    }
}

/// The item ids, the most popular first.
fn shuffled(items: u32, random: &mut Random) -> Vec<u32> {
    let mut ids: Vec<u32> = (FIRST_ITEM..FIRST_ITEM + items).collect();
    for end in (1..ids.len()).rev() {
        let other = random.below(end as u64 + 1) as usize;
        ids.swap(end, other);
    }
    ids
}

/// In whole numbers, so that every machine draws the same.
fn cumulative_weights(items: u32) -> Vec<u64> {
    (1..=u64::from(items))
        .scan(0, |sum, rank| {
            *sum += 1_000_000_000 / rank;
            Some(*sum)
        })
        .collect()
}

fn table(header: &str, rows: &[impl Display]) -> String {
    let mut text = format!("{header}\n");
    for row in rows {
        // A String takes everything.
        let _ = writeln!(text, "{row}");
    }
    text
}

/// SplitMix64: small, and good enough for a shop.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `limit`, by the upper half of a product.
    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_files_are_what_the_default_seed_gives() {
        let shop = shop(SEED, ORDERS, ITEMS);
        assert!(table(ORDERS_HEADER, &shop.orders) == include_str!("../data/orders.csv"));
        assert!(table(STOCK_HEADER, &shop.items) == include_str!("../data/stock.csv"));
        assert_ne!(shop.orders, super::shop(SEED + 1, ORDERS, ITEMS).orders);
    }

    #[test]
    fn a_few_items_are_wanted_most_and_some_sell_out() {
        let shop = shop(SEED, ORDERS, ITEMS);
        let mut counts = BTreeMap::<u32, (u32, u32)>::new();
        for order in &shop.orders {
            let (orders, pieces) = counts.entry(order.item_id).or_default();
            *orders += 1;
            *pieces += order.quantity;
        }
        let hottest = counts.values().map(|(orders, _)| *orders).max().unwrap();
        assert!(
            (600..800).contains(&hottest),
            "{hottest} of 3000 orders for one item"
        );
        let short = shop
            .items
            .iter()
            .filter(|item| {
                counts
                    .get(&item.id)
                    .is_some_and(|(_, pieces)| *pieces > item.quantity)
            })
            .count();
        assert!((8..20).contains(&short), "{short} of 40 items sell out");
    }

    #[test]
    fn what_is_written_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let options = GenerateOptions {
            seed: 1,
            orders: 50,
            items: 3,
            out: folder.path().to_owned(),
        };
        main(&options).unwrap();
        let read = Shop::read(folder.path()).unwrap();
        assert_eq!(read.orders, shop(1, 50, 3).orders);
        assert_eq!(read.items.len(), 3);
    }
}
