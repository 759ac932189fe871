// mistakes: 1
use distlock::distributed_lock;

#[distributed_lock(key = "nightly")]
mod shop {
    pub async fn restock() {}
}

fn main() {
    let _ = shop::restock();
}
