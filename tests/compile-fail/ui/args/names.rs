// mistakes: 3
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly", label = "two\nlines")]
async fn label_with_a_line_feed() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", key_fn = "nightly_key")]
async fn key_fn_quoted() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "nightly", key_fn = key_fn_of_the_same_name)]
async fn key_fn_of_the_same_name() -> Result<(), Error> {
    Ok(())
}

fn main() {}
