//! Other locks under the loads of the bench, which starts this program as a worker.

use anyhow::bail;

mod lockers;
#[path = "../../bench/src/worker/load.rs"]
mod load;
#[path = "../../bench/src/worker/order.rs"]
mod order;

use load::serve_locker;
use lockers::{AsyncRedisLock, Rlock, Rslock};
use order::Order;

fn main() -> anyhow::Result<()> {
    let Order {
        locker,
        load,
        place,
        url,
        ..
    } = Order::read()?;
    place.run(async move {
        match locker.as_str() {
            "rslock" => serve_locker(load, |_| Rslock::connect(&url)).await,
            "async-redis-lock" => serve_locker(load, |_| AsyncRedisLock::connect(&url)).await,
            "rlock" => serve_locker(load, |_| Rlock::connect(&url)).await,
            unknown => bail!("no such locker: `{unknown}`"),
        }
    })
}
