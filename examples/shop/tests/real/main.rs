//! The shop against the servers that `DATABASE_URL` and `LOCKS_URL` name.
//! `./servers.sh cargo test --features real` starts and stops both.

#![allow(clippy::unwrap_used)]

mod fence;
mod replica;
mod replicas;

use std::time::{Duration, Instant};

use distlock::LockManager;
use shop::shop::Shop;
use sqlx::PgPool;

fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set; run this under servers.sh"))
}

/// Returns the locks and the database of a replica, with this stock of an item and no orders. Every
/// test has an item of its own.
async fn stock_up(item: i64, pieces: i64) -> (LockManager, PgPool) {
    let locks = shop::connect_locks(&setting("LOCKS_URL")).await.unwrap();
    let database = PgPool::connect(&setting("DATABASE_URL")).await.unwrap();
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

/// Waits until a condition holds.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(
            Instant::now() < deadline,
            "waited for a minute until {what}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
