// mistakes: 1
use distlock::Error;

// Without the attribute.
async fn restock<'a>() -> Result<&'a str, Error> {
    let name = String::from("shop");
    Ok(&name)
}

fn main() {}
