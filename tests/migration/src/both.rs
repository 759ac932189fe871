// rslock 0.10 and distlock, for one release
use std::error::Error;
use std::time::Duration;

use distlock::distributed_lock;
use rslock::LockManager;

#[distributed_lock(key = "stock:<item_id>", lease = "30s", wait = "10s")]
pub async fn reduce(old: &LockManager, item_id: u64) -> Result<(), Box<dyn Error + Send + Sync>> {
    let key = format!("stock:{item_id}");
    let guard = old.acquire(&*key, Duration::from_secs(60)).await?;
    // Read the stock, and write it.
    guard.release().await;
    Ok(())
}
