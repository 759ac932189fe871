// mistakes: 1
use distlock::Error;

use std::rc::Rc;

// Without the attribute.
async fn restock() -> Result<u64, Error> {
    let count = Rc::new(1);
    std::future::ready(()).await;
    Ok(*count)
}

fn spawn<T: Send>(_: T) {}

fn main() {
    spawn(restock());
}
