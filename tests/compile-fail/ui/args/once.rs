// mistakes: 19
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", once_per = "1h", once_for = day)]
async fn once_per_with_once_for(day: u32) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_per = "1h", min_hold = "10m")]
async fn once_per_with_min_hold() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_for = day, lock_if = shared)]
async fn once_for_with_lock_if(day: u32, shared: bool) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["nightly", "daily"], once_per = "1h")]
async fn once_per_with_keys() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", mode = "read", once_for = day)]
async fn once_for_with_mode(day: u32) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", permits = 3, weight = 2, once_per = "1h")]
async fn once_per_with_permits() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", record_ttl = "30d")]
async fn record_ttl_alone() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_per = "1h", record_ttl = "30d")]
async fn record_ttl_with_once_per() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_per = "999ms")]
async fn once_per_too_short() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_per = "367d")]
async fn once_per_too_long() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_for = day, record_ttl = "0s")]
async fn record_ttl_zero(day: u32) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_per = 3600)]
async fn once_per_is_a_number() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_for = "")]
async fn once_for_empty() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(
    key = "nightly",
    once_for = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\
                0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef-"
)]
async fn once_for_too_long() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_for = "<day>")]
async fn once_for_is_a_template(day: u32) -> Result<(), Error> {
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

#[distributed_lock(key = "nightly", idempotency_key = day)]
async fn once_for_by_another_name(day: u32) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", once_pre = "1m")]
async fn once_per_misspelt() -> Result<(), Error> {
    Ok(())
}

fn main() {}
