//! Acquires and releases a lock `N` times, on one thread without observers, to count a pair's cost.
//!
//! ```sh
//! cargo build --release -p bench --example pairs
//! for n in 1000 11000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/pairs $n
//! done
//! ```
//!
//! The difference of the collected counts, divided by 10 000, is the number of instructions of a
//! pair. The same difference of `valgrind --tool=memcheck` ("total heap usage") is the number of
//! its allocations. `pairs N run` measures `Lock::run` in place of `acquire` and `release`.

use distlock::{Error, LockManager};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let pairs = args.next().and_then(|pairs| pairs.parse().ok());
    let runs = args.next().is_some_and(|what| what == "run");
    let manager = LockManager::builder().in_memory_on_current_runtime()?;
    let lock = manager.lock("pairs:7").label("pairs:<n>");
    for _ in 0..pairs.unwrap_or(1_000_u32) {
        if runs {
            lock.run(async |_| Ok::<_, Error>(())).await?;
        } else {
            lock.acquire().await?.release().await?;
        }
    }
    manager.shutdown().await;
    Ok(())
}
