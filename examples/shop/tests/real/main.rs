//! The shop against PostgreSQL and Redis, which `DATABASE_URL` and `REDIS_URL` name:
//! `./servers.sh cargo test --features real` starts them and ends them.

#![allow(clippy::unwrap_used)]

mod commit;
mod fence;
mod place;
mod replica;
mod replicas;
mod servers;

use std::time::{Duration, Instant};

use distlock::LockManager;
use shop::shop::Shop;
use sqlx::PgPool;

/// The locks and the database of one replica that is part of the test.
async fn parts() -> (LockManager, PgPool) {
    let locks = LockManager::connect(&setting("REDIS_URL")).await.unwrap();
    let database = PgPool::connect(&setting("DATABASE_URL")).await.unwrap();
    (locks, database)
}

fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set; run this under servers.sh"))
}

/// An item of the test's own, with so many pieces and no orders.
async fn stock_up(item: i64, pieces: i64) -> (LockManager, PgPool) {
    let (locks, database) = parts().await;
    let shop = Shop::new(locks.clone(), database.clone());
    shop.create_tables().await.unwrap();
    sqlx::raw_sql(&format!(
        "DELETE FROM orders WHERE item = {item}; DELETE FROM stock WHERE item = {item};
         INSERT INTO stock (item, quantity) VALUES ({item}, {pieces})"
    ))
    .execute(&database)
    .await
    .unwrap();
    (locks, database)
}

/// Waits for something that is certain to come, and names it where it does not.
async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is().await {
        assert!(
            Instant::now() < deadline,
            "waited for a minute until {what}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
