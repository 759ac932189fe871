// mistakes: 14
use std::pin::Pin;

use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly")]
fn sync(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "nightly")]
const fn constant(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[distributed_lock(key = "nightly")]
fn returns_box_future(item_id: u64) -> BoxFuture<'static, Result<u64, Error>> {
    Box::pin(async move { Ok(item_id) })
}

#[distributed_lock(key = "nightly")]
fn returns_boxed_future(item_id: u64) -> Pin<Box<dyn Future<Output = Result<u64, Error>>>> {
    let later = async move { Ok(item_id) };
    Box::pin(later)
}

#[distributed_lock(key = "nightly")]
fn returns_impl_future(item_id: u64) -> impl Future<Output = Result<u64, Error>> {
    async move { Ok(item_id) }
}

#[distributed_lock(key = "nightly")]
unsafe extern "C" {
    fn reserve(item_id: u64);
}

#[distributed_lock(key = "nightly")]
const SHOP: u8 = 1;

#[distributed_lock(key = "nightly")]
struct Shop;

#[distributed_lock(key = "nightly")]
impl Shop {
    async fn restock(&self) {}
}

#[distributed_lock(key = "nightly")]
mod shop {
    pub async fn restock() {}
}

#[distributed_lock(key = "nightly")]
trait Named {
    fn name(&self) -> String;
}

trait Jobs {
    #[distributed_lock(key = "nightly")]
    async fn without_body(&self);
}

fn main() {
    #[distributed_lock(key = "nightly")]
    let _later = async { 1 };
    let _ = (Shop.restock(), shop::restock());
}
