// mistakes: 8
use distlock::{Error, distributed_lock};

const LABEL: &str = "reservations";

#[distributed_lock(key = "nightly", label = LABEL)]
async fn label_of_run_time() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", label = "")]
async fn label_empty() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", label = "two\nlines")]
async fn label_with_a_line_feed() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", metadata = "two\nlines")]
async fn metadata_with_a_line_feed() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", key_fn = "nightly_key")]
async fn key_fn_quoted() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", key_fn = keys::nightly)]
async fn key_fn_with_a_path() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", key_fn = self)]
async fn key_fn_is_a_keyword() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", key_fn = key_fn_of_the_same_name)]
async fn key_fn_of_the_same_name() -> Result<(), Error> {
    Ok(())
}

fn main() {}
