//! Other locks under the loads of the bench, which starts this program as a worker.

use anyhow::bail;

#[path = "../../bench/src/worker/kinds.rs"]
mod kinds;
#[path = "../../bench/src/worker/load.rs"]
mod load;
mod lockers;
#[path = "../../bench/src/worker/order.rs"]
mod order;

use kinds::Kinds;
use load::serve_locker;
use lockers::{AsyncRedisLock, Distkit, Rlock, Rslock};
use order::{Load, Order, serve};

fn main() -> anyhow::Result<()> {
    let Order {
        locker,
        load,
        place,
        url,
        ..
    } = Order::read()?;
    place.run(async move {
        if let Load::Kind { kind, window } = load {
            return match locker.as_str() {
                "distkit" => {
                    serve(Kinds {
                        locker: Distkit::connect(&url).await?,
                        kind,
                        window,
                    })
                    .await
                }
                "rlock" => {
                    serve(Kinds {
                        locker: Rlock::connect(&url).await?,
                        kind,
                        window,
                    })
                    .await
                }
                unknown => bail!("no such locker: `{unknown}`"),
            };
        }
        match locker.as_str() {
            "rslock" => serve_locker(load, |_| Rslock::connect(&url)).await,
            "async-redis-lock" => serve_locker(load, |_| AsyncRedisLock::connect(&url)).await,
            "rlock" => serve_locker(load, |_| Rlock::connect(&url)).await,
            unknown => bail!("no such locker: `{unknown}`"),
        }
    })
}
