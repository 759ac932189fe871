//! Type parameters, const parameters, `impl Trait`, and functions as arguments.

use std::fmt::Display;

use distlock::Error;

use crate::seen::{held, locked, returns};

#[distlock::distributed_lock(key = "generics:<value>")]
async fn bounded<T: Display + Clone>(value: T) -> Result<[T; 2], Error> {
    held().await;
    Ok([value.clone(), value])
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

#[distlock::distributed_lock(key = "generics:<SHARDS>:<NAME>")]
async fn shards<const SHARDS: usize, const NAME: char>(of: [u8; SHARDS]) -> Result<u8, Error> {
    held().await;
    Ok(of.iter().sum())
}

#[distlock::distributed_lock(key = "generics:<name>")]
async fn anonymous(name: impl Display + Send) -> Result<impl Display, Error> {
    held().await;
    Ok(format!("<{name}>"))
}

#[distlock::distributed_lock(key = "generics:iterator")]
async fn nested(words: &[String]) -> Result<impl Iterator<Item = impl Display + '_> + '_, Error> {
    held().await;
    Ok(words.iter().rev())
}

#[distlock::distributed_lock(key = "generics:dyn-fn-mut")]
async fn calls_dyn(function: &mut dyn FnMut(u8) -> u8) -> Result<u8, Error> {
    held().await;
    Ok(function(1) + function(2))
}

#[distlock::distributed_lock(key = "generics:async-fn")]
async fn calls_async<F: AsyncFn(&str) -> usize>(function: F) -> Result<usize, Error> {
    held().await;
    Ok(function("four").await)
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
fn parameters_of_every_kind() {
    returns("generics:7", bounded(7), &[7, 7]);
    returns("generics:k:where", with_where('k', &["v"]), &["v"]);
    let sum = shards::<3, 'c'>([1, 2, 3]);
    returns("generics:3:c", sum, &6);
    let labelled = Labelled(&"label");
    returns("generics:label:8", labelled.with(8), &(&"label", 8));
}

#[test]
fn impl_trait_as_argument_and_result() {
    let shown = locked("generics:anonymous", anonymous("anonymous"));
    assert_eq!(shown.expect("a name").to_string(), "<anonymous>");
    let words = ["a".to_owned(), "b".to_owned()];
    let words = locked("generics:iterator", nested(&words));
    let words: Vec<String> = words.expect("words").map(|w| w.to_string()).collect();
    assert_eq!(words, ["b", "a"]);
}

#[test]
fn functions_as_arguments() {
    let mut calls = 0;
    let mut tenfold = |n| {
        calls += 1;
        n * 10
    };
    returns("generics:dyn-fn-mut", calls_dyn(&mut tenfold), &30);
    assert_eq!(calls, 2);
    let offset = 1;
    let length = calls_async(async |text| text.len() + offset);
    returns("generics:async-fn", length, &5);
}
