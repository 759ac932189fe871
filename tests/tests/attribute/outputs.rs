//! The forms of a body's result.

use std::cell::Cell;
use std::error::Error as StdError;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use distlock::{Error, FromLockError};
use futures::FutureExt;

use crate::seen::{block_on, held, locked, locked_and_stopped, returns};

#[derive(Debug)]
enum ShopError {
    Lock(Error),
    SoldOut,
}

impl From<Error> for ShopError {
    fn from(error: Error) -> Self {
        ShopError::Lock(error)
    }
}

type Result<T, E = ShopError> = std::result::Result<T, E>;

#[distlock::distributed_lock(key = "outputs:unit")]
async fn unit() -> Result<()> {
    held().await;
    Ok(())
}

#[test]
fn an_alias_and_an_error_enum() {
    returns("outputs:unit", unit(), &());
    let failure = block_on(unit()).expect_err("no manager");
    assert!(matches!(failure, ShopError::Lock(Error::NotInstalled)));
}

#[distlock::distributed_lock(key = "outputs:early:<left>")]
async fn early_return(left: u8) -> crate::outputs::Result<u8> {
    held().await;
    if left == 0 {
        return Err(ShopError::SoldOut);
    }
    Ok(left - 1)
}

#[test]
fn an_early_return_releases() {
    let left = locked("outputs:early:0", early_return(0));
    assert!(matches!(left, Err(ShopError::SoldOut)));
    returns("outputs:early:1", early_return(1), &0);
}

#[distlock::distributed_lock(key = "outputs:question:<text>")]
async fn question_mark(text: &str) -> std::result::Result<u8, Box<dyn StdError + Send + Sync>> {
    held().await;
    let n: u8 = text.parse()?;
    Ok(n)
}

#[test]
fn a_question_mark_in_a_boxed_error() {
    returns("outputs:question:7", question_mark("7"), &7);
    let failure = locked("outputs:question:x", question_mark("x")).expect_err("no number");
    assert!(failure.is::<std::num::ParseIntError>(), "{failure}");
    let failure = block_on(question_mark("7")).expect_err("no manager");
    assert!(failure.is::<Error>(), "{failure}");
}

#[distlock::distributed_lock(key = "outputs:anyhow")]
async fn of_anyhow() -> anyhow::Result<u8> {
    held().await;
    Err(anyhow::Error::msg("as written"))
}

#[test]
fn anyhow_takes_both_failures() {
    let failure = locked("outputs:anyhow", of_anyhow());
    assert_eq!(failure.expect_err("a failure").to_string(), "as written");
    let failure = block_on(of_anyhow()).expect_err("no manager");
    assert!(failure.downcast_ref::<Error>().is_some(), "{failure}");
}

#[derive(Debug, PartialEq)]
struct Response(u16);

impl FromLockError for Response {
    fn from_lock_error(error: Error) -> Self {
        Response(if error.is_retryable() { 503 } else { 500 })
    }
}

#[distlock::distributed_lock(key = "outputs:response")]
async fn response() -> Response {
    held().await;
    Response(200)
}

#[test]
fn a_type_that_is_no_result() {
    assert_eq!(locked("outputs:response", response()), Response(200));
    assert_eq!(block_on(response()), Response(500));
}

#[distlock::distributed_lock(key = "outputs:local")]
async fn local() -> Result<u8> {
    let count = Rc::new(Cell::new(1));
    held().await;
    count.set(count.get() + 1);
    Ok(count.get())
}

#[test]
fn a_body_that_is_not_send() {
    returns("outputs:local", local(), &2);
}

#[distlock::distributed_lock(key = "outputs:diverging")]
async fn diverging() -> Result<u8> {
    held().await;
    panic!("as written");
}

#[distlock::distributed_lock(key = "outputs:never", max_hold = "20ms", on_error = |e| panic!("{e}"))]
async fn never() -> ! {
    held().await;
    loop {
        std::future::pending::<()>().await;
    }
}

fn panic_of<T>(outcome: std::thread::Result<T>) -> String {
    let Err(panic) = outcome else {
        return "no panic".to_owned();
    };
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic
            .downcast_ref::<&str>()
            .map_or(String::new(), |&text| text.to_owned()),
    }
}

#[test]
fn a_panic_passes_through_and_releases() {
    let outcome = locked_and_stopped(
        "outputs:diverging",
        AssertUnwindSafe(diverging()).catch_unwind(),
    );
    assert_eq!(panic_of(outcome), "as written");
}

#[test]
fn a_function_that_never_returns() {
    let outcome = locked_and_stopped(
        "outputs:never",
        AssertUnwindSafe(async { never().await }).catch_unwind(),
    );
    let message = panic_of::<()>(outcome);
    assert!(message.contains("max_hold"), "{message}");
}
