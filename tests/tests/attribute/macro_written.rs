//! Functions that a `macro_rules!` writes, with names from either side of it.

use distlock::Error;

use crate::seen::{held, locked};

macro_rules! locked_function {
    ($name:ident, $key:literal, $parameter:ident, $output:ty, $lease:expr) => {
        #[distlock::distributed_lock(key = $key, lease = $lease)]
        async fn $name($parameter: u8, own: u8) -> $output {
            held().await;
            Ok($parameter + own)
        }
    };
    ($name:ident) => {
        #[distlock::distributed_lock(key = "macro:own:<own>")]
        async fn $name(own: u8) -> Result<u8, Error> {
            held().await;
            Ok(own)
        }
    };
    ($name:ident, $body:block) => {
        #[distlock::distributed_lock(key = "macro:body")]
        async fn $name() -> Result<u8, Error> $body
    };
}

locked_function!(passed, "macro:<id>", id, Result<u8, Error>, "15s");
locked_function!(own);
locked_function!(block, {
    held().await;
    Ok(3)
});

#[test]
fn a_key_and_a_parameter_that_are_passed() {
    assert_eq!(locked("macro:1", passed(1, 2)).expect("a sum"), 3);
}

#[test]
fn a_key_and_a_parameter_of_the_macro() {
    assert_eq!(locked("macro:own:7", own(7)).expect("a number"), 7);
}

#[test]
fn a_body_that_is_passed() {
    assert_eq!(locked("macro:body", block()).expect("a number"), 3);
}
