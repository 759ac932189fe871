//! Parameters that are more than a name, and attributes around them.

use distlock::Error;

use crate::seen::{held, returns};

struct Point {
    x: u32,
    y: u32,
}

struct Wrapper(u32);

#[distlock::distributed_lock(key = "patterns:<count>")]
async fn mutable(mut count: u32) -> Result<u32, Error> {
    held().await;
    count += 1;
    Ok(count)
}

#[distlock::distributed_lock(key = "patterns:<a>-<b>-<x>-<height>-<inner>-<first>-<whole.0>")]
async fn taken_apart(
    (a, b): (u8, &str),
    Point { x, y: height }: Point,
    Wrapper(inner): Wrapper,
    [first, ..]: [u8; 3],
    whole @ (_, _): (u8, u8),
    _: u8,
) -> Result<u32, Error> {
    held().await;
    assert_eq!((a, b, first, whole), (1, "b", 4, (7, 8)));
    Ok(x + height + inner)
}

#[distlock::distributed_lock(key = "patterns:<id>:by-reference")]
async fn by_reference(&(id, ref name): &(u8, String)) -> Result<usize, Error> {
    held().await;
    Ok(usize::from(id) + name.len())
}

#[distlock::distributed_lock(key = "patterns:<there>:cfg")]
async fn conditional(#[cfg(any())] missing: u8, #[cfg(not(any()))] there: u8) -> Result<u8, Error> {
    held().await;
    Ok(there)
}

/// Documented.
///
/// # Errors
///
/// Those of the lock.
#[cfg(not(any()))]
#[must_use = "attributes stay"]
#[distlock::distributed_lock(key = "patterns:attributed")]
/// Also below.
#[inline]
async fn attributed() -> Result<&'static str, Error> {
    held().await;
    Ok("attributed")
}

#[distlock::distributed_lock(key = "patterns:inner")]
async fn inner_attributes() -> Result<&'static str, Error> {
    //! Documented inside.
    #![deny(nonstandard_style)]
    held().await;
    Ok("inner")
}

#[test]
fn every_pattern() {
    // The key has the value from before the body.
    returns("patterns:1", mutable(1), &2);
    let point = Point { x: 20, y: 30 };
    let sum = taken_apart((1, "b"), point, Wrapper(40), [4, 5, 6], (7, 8), 9);
    returns("patterns:1-b-20-30-40-4-7", sum, &90);
    let pair = (1, String::from("name"));
    returns("patterns:1:by-reference", by_reference(&pair), &5);
}

#[test]
fn attributes_and_comments_around_and_inside() {
    returns("patterns:3:cfg", conditional(3), &3);
    returns("patterns:attributed", attributed(), &"attributed");
    returns("patterns:inner", inner_attributes(), &"inner");
}
