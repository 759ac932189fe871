// mistakes: 1
use distlock::distributed_lock;

#[distributed_lock(key = "nightly")]
trait Shop {
    fn name(&self) -> String;
}

fn main() {}
