//! Parameters that are more than a name, and what may stand around them.

use distlock::Error;

use crate::seen::{held, locked};

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

#[test]
fn a_mut_binding_has_its_value_from_before_the_body_in_the_key() {
    assert_eq!(locked("patterns:1", mutable(1)).expect("a count"), 2);
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

#[test]
fn tuple_struct_slice_binding_and_wildcard() {
    let point = Point { x: 20, y: 30 };
    let sum = locked(
        "patterns:1-b-20-30-40-4-7",
        taken_apart((1, "b"), point, Wrapper(40), [4, 5, 6], (7, 8), 9),
    );
    assert_eq!(sum.expect("a sum"), 90);
}

#[distlock::distributed_lock(key = "patterns:<id>:by-reference")]
async fn by_reference(&(id, ref name): &(u8, String)) -> Result<usize, Error> {
    held().await;
    Ok(usize::from(id) + name.len())
}

#[test]
fn a_reference_pattern() {
    let pair = (1, String::from("name"));
    let sum = locked("patterns:1:by-reference", by_reference(&pair));
    assert_eq!(sum.expect("a sum"), 5);
}

#[distlock::distributed_lock(key = "patterns:<type>:<r#fn>")]
async fn r#match(r#type: &str, r#fn: u8) -> Result<String, Error> {
    held().await;
    Ok(format!("{type}{fn}"))
}

#[test]
fn raw_identifiers() {
    let text = locked("patterns:t:7", r#match("t", 7));
    assert_eq!(text.expect("a text"), "t7");
}

#[distlock::distributed_lock(key = "patterns:<there>:cfg")]
async fn conditional(#[cfg(any())] missing: u8, #[cfg(not(any()))] there: u8) -> Result<u8, Error> {
    held().await;
    Ok(there)
}

#[test]
fn cfg_on_parameters() {
    assert_eq!(locked("patterns:3:cfg", conditional(3)).expect("it"), 3);
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

#[test]
fn doc_comments_and_attributes() {
    let text = locked("patterns:attributed", attributed());
    assert_eq!(text.expect("a text"), "attributed");
}

#[distlock::distributed_lock(key = "patterns:inner")]
async fn inner_attributes() -> Result<&'static str, Error> {
    //! Documented inside.
    #![deny(nonstandard_style)]
    held().await;
    Ok("inner")
}

#[test]
fn inner_attributes_and_inner_doc_comments() {
    let text = locked("patterns:inner", inner_attributes());
    assert_eq!(text.expect("a text"), "inner");
}
