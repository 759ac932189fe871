// mistakes: 1
use distlock::{Error, distributed_lock};

type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[distributed_lock(key = "inventory:<item_id>")]
fn reserve(item_id: u64) -> BoxFuture<'static, Result<u64, Error>> {
    Box::pin(async move { Ok(item_id) })
}

fn main() {}
