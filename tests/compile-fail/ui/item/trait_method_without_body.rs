// mistakes: 1
use distlock::distributed_lock;

trait Shop {
    #[distributed_lock(key = "nightly")]
    async fn restock(&self);
}

fn main() {}
