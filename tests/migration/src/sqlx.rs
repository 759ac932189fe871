// sqlx 0.9
use sqlx::PgPool;
use sqlx::postgres::PgAdvisoryLock;

pub async fn reduce(pool: &PgPool, item_id: u64) -> Result<(), sqlx::Error> {
    let lock = PgAdvisoryLock::new(format!("stock:{item_id}"));
    let guard = lock.acquire(pool.acquire().await?).await?;
    // Read the stock, and write it.
    guard.release_now().await?;
    Ok(())
}
