// mistakes: 1
use distlock::distributed_lock;

#[distributed_lock(key = "nightly")]
async fn restock() -> () {}

fn main() {}
