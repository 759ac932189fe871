// mistakes: 1
use distlock::{Error, distributed_lock};

use std::rc::Rc;

#[distributed_lock(key = "nightly")]
async fn restock() -> Result<u64, Error> {
    let count = Rc::new(1);
    std::future::ready(()).await;
    Ok(*count)
}

fn spawn<T: Send>(_: T) {}

fn main() {
    spawn(restock());
}
