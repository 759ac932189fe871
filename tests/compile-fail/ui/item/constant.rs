// mistakes: 1
use distlock::distributed_lock;

#[distributed_lock(key = "nightly")]
const SHOP: u8 = 1;

fn main() {}
