// mistakes: 1
use distlock::distributed_lock;

#[distributed_lock(key = "nightly")]
unsafe extern "C" {
    fn reserve(item_id: u64);
}

fn main() {}
