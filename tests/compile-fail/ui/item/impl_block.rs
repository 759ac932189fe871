// mistakes: 1
use distlock::distributed_lock;

struct Shop;

#[distributed_lock(key = "nightly")]
impl Shop {
    async fn restock(&self) {}
}

fn main() {
    let _ = Shop.restock();
}
