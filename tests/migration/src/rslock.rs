// rslock 0.10
use std::time::Duration;

use rslock::{LockError, LockManager};

pub async fn reduce(locks: &LockManager, item_id: u64) -> Result<(), LockError> {
    let key = format!("stock:{item_id}");
    let guard = locks.acquire(&*key, Duration::from_secs(60)).await?;
    // Read the stock, and write it.
    guard.release().await;
    Ok(())
}
