// mistakes: 1
use distlock::distributed_lock;

#[distributed_lock(key = "nightly")]
struct Shop;

fn main() {
    let _ = Shop;
}
