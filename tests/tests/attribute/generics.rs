//! Type parameters, const parameters, `impl Trait`, and functions as arguments.

use std::fmt::Display;

use distlock::Error;

use crate::seen::{held, locked};

#[distlock::distributed_lock(key = "generics:<value>")]
async fn bounded<T: Display + Clone>(value: T) -> Result<[T; 2], Error> {
    held().await;
    Ok([value.clone(), value])
}

#[test]
fn a_type_parameter() {
    let twice = locked("generics:7", bounded(7));
    assert_eq!(twice.expect("a pair"), [7, 7]);
}

#[distlock::distributed_lock(key = "generics:<key>:where")]
async fn with_where<K, V>(key: K, values: &[V]) -> Result<Vec<V>, Error>
where
    K: Display,
    V: Clone,
    for<'a> &'a V: PartialEq,
{
    held().await;
    Ok(values.to_vec())
}

#[test]
fn a_where_clause() {
    let values = locked("generics:k:where", with_where('k', &["v"]));
    assert_eq!(values.expect("values"), ["v"]);
}

#[distlock::distributed_lock(key = "generics:<SHARDS>:<NAME>")]
async fn shards<const SHARDS: usize, const NAME: char>(of: [u8; SHARDS]) -> Result<u8, Error> {
    held().await;
    Ok(of.iter().sum())
}

#[test]
fn const_parameters_in_the_key() {
    let sum = locked("generics:3:c", shards::<3, 'c'>([1, 2, 3]));
    assert_eq!(sum.expect("a sum"), 6);
}

#[distlock::distributed_lock(key = "generics:<name>")]
async fn anonymous(name: impl Display + Send) -> Result<impl Display, Error> {
    held().await;
    Ok(format!("<{name}>"))
}

#[test]
fn impl_trait_as_argument_and_result() {
    let shown = locked("generics:anonymous", anonymous("anonymous"));
    assert_eq!(shown.expect("a name").to_string(), "<anonymous>");
}

#[distlock::distributed_lock(key = "generics:iterator")]
async fn nested(words: &[String]) -> Result<impl Iterator<Item = impl Display + '_> + '_, Error> {
    held().await;
    Ok(words.iter().rev())
}

#[test]
fn impl_trait_inside_of_impl_trait() {
    let words = ["a".to_owned(), "b".to_owned()];
    let words = locked("generics:iterator", nested(&words));
    let words: Vec<String> = words.expect("words").map(|w| w.to_string()).collect();
    assert_eq!(words, ["b", "a"]);
}

#[distlock::distributed_lock(key = "generics:dyn-fn-mut")]
async fn calls_dyn(function: &mut dyn FnMut(u8) -> u8) -> Result<u8, Error> {
    held().await;
    Ok(function(1) + function(2))
}

#[test]
fn a_dyn_fn_mut() {
    let mut calls = 0;
    let sum = locked(
        "generics:dyn-fn-mut",
        calls_dyn(&mut |n| {
            calls += 1;
            n * 10
        }),
    );
    assert_eq!((sum.expect("a sum"), calls), (30, 2));
}

#[distlock::distributed_lock(key = "generics:async-fn")]
async fn calls_async<F: AsyncFn(&str) -> usize>(function: F) -> Result<usize, Error> {
    held().await;
    Ok(function("four").await)
}

#[test]
fn an_async_fn() {
    let offset = 1;
    let length = locked(
        "generics:async-fn",
        calls_async(async |text| text.len() + offset),
    );
    assert_eq!(length.expect("a length"), 5);
}

struct Labelled<'a, T>(&'a T);

impl<'a, T: Display> Labelled<'a, T> {
    #[distlock::distributed_lock(key = "generics:<self.0>:<other>")]
    async fn with<U: Display>(&'a self, other: U) -> Result<(&'a T, U), Error> {
        held().await;
        Ok((self.0, other))
    }
}

#[test]
fn a_generic_method_of_a_generic_type() {
    let labelled = Labelled(&"label");
    let both = locked("generics:label:8", labelled.with(8));
    assert_eq!(both.expect("both"), (&"label", 8));
}

#[test]
fn the_future_is_send_when_the_body_is() {
    fn send<T: Send>(value: T) -> T {
        value
    }
    let sent = locked("generics:send", send(bounded("send")));
    assert_eq!(sent.expect("a pair"), ["send", "send"]);
}
