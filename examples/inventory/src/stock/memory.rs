//! A stock in this process.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use distlock::FencingToken;

use super::{Level, Seen, StockError};
use crate::orders::{Item, Order};

/// A stock that instances in this process share.
#[derive(Clone, Debug)]
pub(crate) struct MemoryStock {
    // Makes a single read or write atomic, as a database does; not the two together.
    shelves: Arc<Mutex<Shelves>>,
}

#[derive(Debug)]
struct Shelves {
    items: HashMap<u32, Shelf>,
    fulfilled: HashSet<u64>,
}

#[derive(Debug)]
struct Shelf {
    level: Level,
    /// The highest token that has written.
    fence: Option<FencingToken>,
}

impl MemoryStock {
    pub(crate) fn new(items: &[Item]) -> Self {
        let shelf = |item: &Item| Shelf {
            level: Level {
                quantity: item.quantity,
                updates: 0,
            },
            fence: None,
        };
        MemoryStock {
            shelves: Arc::new(Mutex::new(Shelves {
                items: items.iter().map(|item| (item.id, shelf(item))).collect(),
                fulfilled: HashSet::new(),
            })),
        }
    }

    pub(super) fn look(&self, order: &Order) -> Result<Seen, StockError> {
        let shelves = self.shelves();
        let shelf = shelves.items.get(&order.item_id).ok_or(StockError::Gone)?;
        Ok(Seen {
            level: shelf.level,
            fulfilled: shelves.fulfilled.contains(&order.id),
        })
    }

    pub(super) fn reduce(
        &self,
        order: &Order,
        level: Level,
        token: Option<FencingToken>,
    ) -> Result<(), StockError> {
        let mut shelves = self.shelves();
        let shelf = shelves
            .items
            .get_mut(&order.item_id)
            .ok_or(StockError::Gone)?;
        if token.is_some() && shelf.fence > token {
            return Err(StockError::Stale {
                item_id: order.item_id,
            });
        }
        shelf.level = level;
        shelf.fence = token;
        shelves.fulfilled.insert(order.id);
        Ok(())
    }

    pub(super) fn levels(&self, items: &[Item]) -> Result<Vec<Level>, StockError> {
        let shelves = self.shelves();
        items
            .iter()
            .map(|item| shelves.items.get(&item.id).map(|shelf| shelf.level))
            .collect::<Option<_>>()
            .ok_or(StockError::Gone)
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        // Nothing in here stops half-way.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: Order = Order {
        id: 1,
        item_id: 7,
        quantity: 1,
    };

    fn level(quantity: u32, updates: u64) -> Level {
        Level { quantity, updates }
    }

    #[tokio::test]
    async fn the_fence_refuses_a_token_that_is_too_old() {
        let stock = MemoryStock::new(&[Item { id: 7, quantity: 9 }]);
        let locks = distlock::LockManager::memory();
        let older = locks.lock("a").acquire().await.unwrap();
        let old = older.fencing_token();
        older.release().await.unwrap();
        let new = locks.lock("a").acquire().await.unwrap().fencing_token();

        stock.reduce(&ORDER, level(8, 1), Some(new)).unwrap();
        let late = stock.reduce(&ORDER, level(7, 1), Some(old));
        assert!(
            matches!(late, Err(StockError::Stale { item_id: 7 })),
            "{late:?}"
        );
        let seen = stock.look(&ORDER).unwrap();
        assert!(seen.fulfilled && seen.level == level(8, 1), "{seen:?}");
        stock.reduce(&ORDER, level(7, 2), Some(new)).unwrap();
    }

    #[test]
    fn an_unfenced_write_overwrites_whatever_is_there() {
        let stock = MemoryStock::new(&[Item { id: 7, quantity: 9 }]);
        stock.reduce(&ORDER, level(8, 1), None).unwrap();
        stock.reduce(&ORDER, level(8, 1), None).unwrap();
        assert_eq!(stock.look(&ORDER).unwrap().level, level(8, 1));
    }
}
