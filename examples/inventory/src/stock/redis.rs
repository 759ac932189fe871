//! A stock in Redis: one hash per run, deleted at its end.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result};
use distlock::FencingToken;
use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;

use super::dial::dial;
use super::{Level, Seen, StockError};
use crate::orders::{Item, Order};
use crate::store::StoreOptions;

/// Nothing stays for ever, even if nobody is left to delete it.
const TTL: Duration = Duration::from_secs(3600);

/// A connection to the stock of a run.
#[derive(Clone)]
pub(crate) struct RedisStock {
    connection: MultiplexedConnection,
    /// Holds `quantity:`, `updates:`, `fence:<item>` and `order:<order>`.
    key: String,
}

impl RedisStock {
    /// Connects to the stock at `key`, which may not exist yet.
    pub(crate) async fn connect(store: &StoreOptions, key: &str) -> Result<Self> {
        let connection = dial(store, key).await;
        Ok(RedisStock {
            connection: connection.context("cannot connect to the stock")?,
            key: key.to_owned(),
        })
    }

    /// Fills the shelves.
    pub(crate) async fn fill(&self, items: &[Item]) -> Result<(), StockError> {
        let fields = items.iter().flat_map(|item| {
            [
                (format!("quantity:{}", item.id), item.quantity.to_string()),
                (format!("updates:{}", item.id), "0".into()),
                (format!("fence:{}", item.id), "0".into()),
            ]
        });
        self.write(fields.collect()).await
    }

    pub(crate) async fn delete(&self) -> Result<(), StockError> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("DEL").arg(&self.key).ignore();
        self.run(&pipeline).await
    }

    pub(super) async fn look(&self, order: &Order) -> Result<Seen, StockError> {
        let mut pipeline = redis::pipe();
        pipeline
            .cmd("HMGET")
            .arg(&self.key)
            .arg(format!("quantity:{}", order.item_id))
            .arg(format!("updates:{}", order.item_id))
            .arg(format!("order:{}", order.id));
        type Fields = (Option<u32>, Option<u64>, Option<String>);
        let ((quantity, updates, order),): (Fields,) = self.run(&pipeline).await?;
        Ok(Seen {
            level: Level {
                quantity: quantity.ok_or(StockError::Gone)?,
                updates: updates.ok_or(StockError::Gone)?,
            },
            fulfilled: order.is_some(),
        })
    }

    pub(super) async fn reduce(
        &self,
        order: &Order,
        level: Level,
        token: Option<FencingToken>,
    ) -> Result<(), StockError> {
        match token {
            Some(token) => self.fenced(order, level, token).await,
            None => self.plain(order, level).await,
        }
    }

    async fn fenced(
        &self,
        order: &Order,
        level: Level,
        token: FencingToken,
    ) -> Result<(), StockError> {
        let mut pipeline = redis::pipe();
        pipeline
            .cmd("EVAL")
            .arg(include_str!("reduce.lua"))
            .arg(1)
            .arg(&self.key)
            .arg(order.item_id)
            .arg(order.id)
            .arg(level.quantity)
            .arg(level.updates)
            .arg(token.get());
        let (reply,): (String,) = self.run(&pipeline).await?;
        match reply.as_str() {
            "written" => Ok(()),
            "stale" => Err(StockError::Stale {
                item_id: order.item_id,
            }),
            _ => Err(StockError::Gone),
        }
    }

    async fn plain(&self, order: &Order, level: Level) -> Result<(), StockError> {
        let item = order.item_id;
        self.write(vec![
            (format!("quantity:{item}"), level.quantity.to_string()),
            (format!("updates:{item}"), level.updates.to_string()),
            (format!("order:{}", order.id), "fulfilled".into()),
        ])
        .await
    }

    /// Without looking, in one step that proxies pass on too. It says again when all of it ends, in case that the run was
    /// deleted meanwhile.
    async fn write(&self, fields: Vec<(String, String)>) -> Result<(), StockError> {
        let mut pipeline = redis::pipe();
        pipeline
            .cmd("EVAL")
            .arg(include_str!("write.lua"))
            .arg(1)
            .arg(&self.key)
            .arg(TTL.as_secs())
            .arg(fields)
            .ignore();
        self.run(&pipeline).await
    }

    pub(super) async fn levels(&self, items: &[Item]) -> Result<Vec<Level>, StockError> {
        let mut pipeline = redis::pipe();
        for item in items {
            pipeline
                .cmd("HMGET")
                .arg(&self.key)
                .arg(format!("quantity:{}", item.id))
                .arg(format!("updates:{}", item.id));
        }
        let levels: Vec<(Option<u32>, Option<u64>)> = self.run(&pipeline).await?;
        levels
            .into_iter()
            .map(|(quantity, updates)| {
                Some(Level {
                    quantity: quantity?,
                    updates: updates?,
                })
            })
            .collect::<Option<_>>()
            .ok_or(StockError::Gone)
    }

    async fn run<T: FromRedisValue>(&self, pipeline: &redis::Pipeline) -> Result<T, StockError> {
        let mut connection = self.connection.clone();
        pipeline
            .query_async(&mut connection)
            .await
            .map_err(|error| StockError::Unavailable(error.to_string()))
    }
}

impl fmt::Debug for RedisStock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStock")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use distlock_tests::RedisServer;

    const ORDER: Order = Order {
        id: 1,
        item_id: 7,
        quantity: 1,
    };
    const ITEMS: [Item; 1] = [Item { id: 7, quantity: 9 }];

    fn level(quantity: u32, updates: u64) -> Level {
        Level { quantity, updates }
    }

    async fn connect(server: &RedisServer) -> RedisStock {
        let store = StoreOptions {
            url: server.url(),
            min_replicas: 0,
        };
        RedisStock::connect(&store, "stock").await.unwrap()
    }

    #[tokio::test]
    async fn the_fence_refuses_a_token_that_is_too_old() {
        let server = RedisServer::start();
        let stock = connect(&server).await;
        stock.fill(&ITEMS).await.unwrap();
        let locks = distlock::LockManager::memory();
        let older = locks.lock("a").acquire().await.unwrap();
        let old = older.fencing_token();
        older.release().await.unwrap();
        let new = locks.lock("a").acquire().await.unwrap().fencing_token();

        assert!(!stock.look(&ORDER).await.unwrap().fulfilled);
        stock.reduce(&ORDER, level(8, 1), Some(new)).await.unwrap();
        let late = stock.reduce(&ORDER, level(7, 1), Some(old)).await;
        assert!(
            matches!(late, Err(StockError::Stale { item_id: 7 })),
            "{late:?}"
        );
        let seen = stock.look(&ORDER).await.unwrap();
        assert!(seen.fulfilled && seen.level == level(8, 1), "{seen:?}");
        stock.reduce(&ORDER, level(7, 2), Some(new)).await.unwrap();
        assert_eq!(stock.levels(&ITEMS).await.unwrap(), [level(7, 2)]);

        stock.delete().await.unwrap();
        let gone = stock.reduce(&ORDER, level(6, 3), Some(new)).await;
        assert!(matches!(gone, Err(StockError::Gone)), "{gone:?}");
        assert!(matches!(stock.look(&ORDER).await, Err(StockError::Gone)));
    }

    #[tokio::test]
    async fn an_unfenced_write_overwrites_and_still_expires() {
        let server = RedisServer::start();
        let stock = connect(&server).await;
        stock.fill(&ITEMS).await.unwrap();
        stock.reduce(&ORDER, level(8, 1), None).await.unwrap();
        stock.reduce(&ORDER, level(8, 1), None).await.unwrap();
        let seen = stock.look(&ORDER).await.unwrap();
        assert!(seen.fulfilled && seen.level == level(8, 1), "{seen:?}");
        stock.delete().await.unwrap();
        stock.reduce(&ORDER, level(8, 1), None).await.unwrap();
        assert!(server.client().pttl("stock") > 0);
    }
}
