// mistakes: 2
use distlock::distributed_lock;

fn main() {
    #[distributed_lock(key = "nightly")]
    let _later = async { 1 };
}
