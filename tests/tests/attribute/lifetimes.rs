//! Lifetimes that reach the result.

use distlock::Error;

use crate::seen::{held, locked, returns};

#[distlock::distributed_lock(key = "lifetimes:<text>")]
async fn first_word(text: &str) -> Result<&str, Error> {
    held().await;
    Ok(text.split('-').next().unwrap_or(text))
}

#[distlock::distributed_lock(key = "lifetimes:<long>:<short>")]
async fn both<'long, 'short>(
    long: &'long str,
    short: &'short str,
) -> Result<(&'long str, &'short str), Error> {
    held().await;
    Ok((long, short))
}

struct Shelf<T> {
    items: Vec<T>,
}

impl<T> Shelf<T> {
    #[distlock::distributed_lock(key = "lifetimes:<at>:last")]
    async fn last(&mut self, at: usize) -> Result<&mut T, Error> {
        held().await;
        Ok(&mut self.items[at])
    }
}

struct View<'a> {
    text: &'a str,
}

impl<'a> View<'a> {
    #[distlock::distributed_lock(key = "lifetimes:view:<self.text>")]
    async fn text(&self) -> Result<&'a str, Error> {
        held().await;
        Ok(self.text)
    }
}

#[distlock::distributed_lock(key = "lifetimes:static")]
async fn forever(text: &'static str) -> Result<&'static str, Error> {
    held().await;
    Ok(text)
}

#[test]
fn every_lifetime() {
    returns("lifetimes:one-two", first_word("one-two"), &"one");
    let long = String::from("long");
    let outlives = {
        let short = String::from("short");
        let both = locked("lifetimes:long:short", both(&long, &short));
        both.expect("both").0
    };
    assert_eq!(outlives, "long");
    let mut shelf = Shelf { items: vec![1, 2] };
    *locked("lifetimes:1:last", shelf.last(1)).expect("an item") += 40;
    assert_eq!(shelf.items, [1, 42]);
    let owned = String::from("text");
    let text = locked("lifetimes:view:text", View { text: &owned }.text());
    assert_eq!(text.expect("a text"), "text");
    returns("lifetimes:static", forever("for ever"), &"for ever");
}
