// mistakes: 3
use distlock::Error;

// Without the attribute.
async fn borrow_of_local<'a>() -> Result<&'a str, Error> {
    let name = String::from("shop");
    Ok(&name)
}

// Without the attribute.
async fn lifetime_too_short<'a, 'b>(a: &'a str, b: &'b str) -> Result<&'a str, Error> {
    let _ = a;
    Ok(b)
}

// Without the attribute.
async fn moved_twice(item: String) -> Result<u64, Error> {
    drop(item);
    drop(item);
    Ok(1)
}

fn main() {}
