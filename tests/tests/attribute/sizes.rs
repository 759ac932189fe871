//! The lock adds little to a future, and the body nothing, because the body is boxed.

use distlock::Error;

/// Upper limit of the lock's share of the size, in bytes.
const LIMIT: usize = 512;

async fn tiny(id: u64) -> Result<u64, Error> {
    tokio::task::yield_now().await;
    Ok(id)
}

#[distlock::distributed_lock(key = "sizes:<id>")]
async fn tiny_locked(id: u64) -> Result<u64, Error> {
    tokio::task::yield_now().await;
    Ok(id)
}

#[distlock::distributed_lock(
    key = "{sizes:<id>}:<name>",
    lease = "15s",
    wait = "500ms",
    max_hold = "1m",
    min_hold = "1s",
    manager = locks,
    on_lost = "finish",
    on_error = |error| Err(error)
)]
async fn tiny_with_all_arguments(
    locks: &distlock::LockManager,
    id: u64,
    name: &str,
) -> Result<u64, Error> {
    tokio::task::yield_now().await;
    Ok(id + name.len() as u64)
}

async fn large(id: u64) -> Result<u64, Error> {
    let block = [id; 512];
    tokio::task::yield_now().await;
    Ok(block.iter().sum())
}

#[distlock::distributed_lock(key = "sizes:<id>")]
async fn large_locked(id: u64) -> Result<u64, Error> {
    let block = [id; 512];
    tokio::task::yield_now().await;
    Ok(block.iter().sum())
}

fn assert_close(locked: usize, plain: usize) {
    assert!(
        locked <= plain + LIMIT,
        "{locked} bytes for a body of {plain}"
    );
}

#[test]
fn a_tiny_body() {
    assert_close(size_of_val(&tiny_locked(1)), size_of_val(&tiny(1)));
}

#[test]
fn a_tiny_body_with_all_arguments() {
    let locks = distlock::LockManager::in_memory();
    let locked = tiny_with_all_arguments(&locks, 1, "name");
    assert_close(size_of_val(&locked), size_of_val(&tiny(1)));
}

#[test]
fn a_body_of_4_kib() {
    assert!(size_of_val(&large(1)) > 4096);
    assert_eq!(size_of_val(&large_locked(1)), size_of_val(&tiny_locked(1)));
}
