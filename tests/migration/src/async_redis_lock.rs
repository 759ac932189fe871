// async-redis-lock 0.4
use std::time::Duration;

use async_redis_lock::{Error, Locker, Options};

pub async fn reduce(locks: &Locker, item_id: u64) -> Result<(), Error> {
    let options = Options::new().timeout(Some(Duration::from_secs(5)));
    let key = format!("stock:{item_id}");
    let lock = locks.acquire_with_options(&options, &key).await?;
    // Read the stock, and write it, unless `lock.is_lost()`.
    lock.release().await
}
