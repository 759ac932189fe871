// mistakes: 1
use distlock::{Error, distributed_lock};

#[distributed_lock(key = "nightly")]
async fn pick<'a, 'b>(a: &'a str, b: &'b str) -> Result<&'a str, Error> {
    let _ = a;
    Ok(b)
}

fn main() {}
