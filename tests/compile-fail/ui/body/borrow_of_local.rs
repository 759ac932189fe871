// mistakes: 1
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly")]
async fn restock<'a>() -> Result<&'a str, Error> {
    let name = String::from("shop");
    Ok(&name)
}

fn main() {}
