// mistakes: 14
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "smtp", permits = 0)]
async fn no_permits() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "smtp", permits = 1001)]
async fn too_many_permits() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "smtp", permits = "3")]
async fn permits_quoted() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "smtp", permits = -3)]
async fn permits_negative() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "smtp", permits = 1.5)]
async fn permits_of_a_half() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "smtp", permits = 3, weight = 0)]
async fn weight_of_nothing() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "smtp", permits = 3, weight = 4)]
async fn weight_above_permits() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "smtp", weight = 2)]
async fn weight_without_permits() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "smtp", permits = 3, weight = pages)]
async fn weight_of_another_type(pages: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["smtp", "imap"], permits = 3)]
async fn permits_with_keys() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "catalog", mode = "shared")]
async fn mode_unknown() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "catalog", mode = read)]
async fn mode_without_quotes() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["catalog", "prices"], mode = "read")]
async fn mode_with_keys() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "catalog", mode = "read", permits = 3)]
async fn mode_with_permits() -> Result<(), Error> {
    Ok(())
}

fn main() {}
