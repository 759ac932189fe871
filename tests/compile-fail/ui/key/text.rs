// mistakes: 3
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "")]
async fn empty(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = r"inventory:<itm_id>")]
async fn raw_string(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "<item_id>%<item_id>")]
async fn percent_after_value(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

fn main() {}
