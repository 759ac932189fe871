//! Lifetimes that reach the result.

use distlock::Error;

use crate::seen::{held, locked};

#[distlock::distributed_lock(key = "lifetimes:<text>")]
async fn first_word(text: &str) -> Result<&str, Error> {
    held().await;
    Ok(text.split('-').next().unwrap_or(text))
}

#[test]
fn an_elided_one() {
    let word = locked("lifetimes:one-two", first_word("one-two"));
    assert_eq!(word.expect("a word"), "one");
}

#[distlock::distributed_lock(key = "lifetimes:<long>:<short>")]
async fn both<'long, 'short>(
    long: &'long str,
    short: &'short str,
) -> Result<(&'long str, &'short str), Error> {
    held().await;
    Ok((long, short))
}

#[test]
fn two_named_ones() {
    let long = String::from("long");
    let outlives = {
        let short = String::from("short");
        let both = locked("lifetimes:long:short", both(&long, &short));
        both.expect("both").0
    };
    assert_eq!(outlives, "long");
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

#[test]
fn a_mutable_borrow_of_self() {
    let mut shelf = Shelf { items: vec![1, 2] };
    *locked("lifetimes:1:last", shelf.last(1)).expect("an item") += 40;
    assert_eq!(shelf.items, [1, 42]);
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

#[test]
fn one_that_outlives_self() {
    let owned = String::from("text");
    let text = locked("lifetimes:view:text", View { text: &owned }.text());
    assert_eq!(text.expect("a text"), "text");
}

#[distlock::distributed_lock(key = "lifetimes:static")]
async fn forever(text: &'static str) -> Result<&'static str, Error> {
    held().await;
    Ok(text)
}

#[test]
fn a_static_one() {
    let text = locked("lifetimes:static", forever("for ever"));
    assert_eq!(text.expect("a text"), "for ever");
}
