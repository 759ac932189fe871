// mistakes: 8
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", once_per = "1h", once_for = day)]
async fn once_per_with_once_for(day: u32) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_for = day, lock_if = shared)]
async fn once_for_with_lock_if(day: u32, shared: bool) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", record_ttl = "30d")]
async fn record_ttl_alone() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_per = "999ms")]
async fn once_per_too_short() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_for = day, record_ttl = "0s")]
async fn record_ttl_zero(day: u32) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_for = "day")]
async fn once_for_quoted(day: u32) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", unique_for = "1h")]
async fn once_per_by_another_name() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_pre = "1m")]
async fn once_per_misspelt() -> Result<(), Error> {
    Ok(())
}

fn main() {}
