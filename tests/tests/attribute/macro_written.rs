//! Functions that a `macro_rules!` writes, with names from either side of it.

use distlock::Error;

use crate::seen::{held, returns};

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
fn names_from_either_side_of_the_macro() {
    returns("macro:1", passed(1, 2), &3);
    returns("macro:own:7", own(7), &7);
    returns("macro:body", block(), &3);
}
