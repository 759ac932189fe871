// mistakes: 11
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "")]
async fn empty(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory\n")]
async fn control_character(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:inventory:")]
async fn too_long(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:<item_id")]
async fn unclosed(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:item_id>")]
async fn unopened(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = r"inventory:<itm_id>")]
async fn raw_string(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:<>")]
async fn positional(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:<0>")]
async fn positional_index(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "<item_id>%<item_id>")]
async fn percent_after_value(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:<item_id:08>")]
async fn format_spec(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

#[distributed_lock(key = "inventory:<item_id + 1>")]
async fn arithmetic(item_id: u64) -> Result<u64, Error> {
    Ok(item_id)
}

fn main() {}
