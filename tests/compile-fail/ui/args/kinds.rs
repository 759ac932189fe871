// mistakes: 6
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "smtp", permits = 1001)]
async fn too_many_permits() -> Result<(), Error> {
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

#[distributed_lock(key = "smtp", permits = 3, weight = pages)]
async fn weight_of_another_type(pages: u64) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(keys = ["smtp", "imap"], permits = 3)]
async fn permits_with_keys() -> Result<(), Error> {
    Ok(())
}

fn main() {}
