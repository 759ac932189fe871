// mistakes: 1
use distlock::distributed_lock;

#[distributed_lock(key = "leader")]
async fn lead() -> ! {
    loop {
        std::future::pending::<()>().await;
    }
}

fn main() {}
