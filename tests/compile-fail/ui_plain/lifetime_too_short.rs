// mistakes: 1
use distlock::Error;

// Without the attribute.
async fn pick<'a, 'b>(a: &'a str, b: &'b str) -> Result<&'a str, Error> {
    let _ = a;
    Ok(b)
}

fn main() {}
