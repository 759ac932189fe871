// rlock 0.2
use std::error::Error;

use rlock::async_lock::RLock;

pub async fn reduce(locks: &RLock, item_id: u64) -> Result<(), Box<dyn Error>> {
    let key = format!("stock:{item_id}");
    let mut guard = locks.acquire_mutex(key).await?;
    // Read the stock, and write it, while `guard.lease_state()` is `Active`.
    guard.release().await?;
    Ok(())
}
