// mistakes: 5
use distlock::Error;

// Without the attribute.
async fn hygiene() -> Result<u64, Error> {
    let _ = (__request, __fail, __returns, __output);
    Ok(1)
}

// Without the attribute.
async fn unknown_name() -> Result<u64, Error> {
    Ok(qty)
}

fn main() {}
