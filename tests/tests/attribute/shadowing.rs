//! Names of the generated code against names in the user's code.

use crate::seen::{locked, on_a_store_of_its_own, returns};

/// Redefines names of the prelude and the standard library.
mod other_prelude {
    #[derive(Debug)]
    pub(super) struct Result;
    #[derive(Debug)]
    pub(super) struct Option;
    #[derive(Debug)]
    pub(super) struct Some;
    #[derive(Debug)]
    pub(super) struct None;
    #[derive(Debug)]
    pub(super) struct Ok;
    #[derive(Debug)]
    pub(super) struct Err;
    #[derive(Debug)]
    pub(super) struct Pin;
    #[derive(Debug)]
    pub(super) struct Box;
    #[derive(Debug)]
    pub(super) struct Future;
    #[derive(Debug)]
    pub(super) struct Request;

    pub(super) mod core {
        pub(in super::super) fn name() -> &'static str {
            "core"
        }
    }
    pub(super) mod std {
        pub(in super::super) fn name() -> &'static str {
            "std"
        }
    }
    pub(super) mod distlock {
        pub(in super::super) fn name() -> &'static str {
            "distlock"
        }
    }

    pub(super) fn run() -> &'static str {
        "run"
    }
    pub(super) fn always() -> &'static str {
        "always"
    }

    macro_rules! pin {
        () => {
            "pin"
        };
    }

    type Outcome = ::std::result::Result<::std::string::String, ::distlock::Error>;

    #[::distlock::distributed_lock(key = "shadowing:<n>", min_hold = "1ms", lease = "5s")]
    pub(super) async fn function(n: u8) -> Outcome {
        let items = (
            Result, Option, Some, None, Ok, Err, Pin, Box, Future, Request,
        );
        let names = (
            core::name(),
            std::name(),
            distlock::name(),
            run(),
            always(),
            pin!(),
        );
        let text = ::std::format!("{items:?} {names:?} {n}");
        ::std::result::Result::Ok(text)
    }

    #[::distlock::distributed_lock(key = "shadowing:held")]
    pub(super) async fn seen() -> ::std::result::Result<(), ::distlock::Error> {
        crate::seen::held().await;
        ::std::result::Result::Ok(())
    }
}

#[test]
fn items_around_the_function() {
    let text = on_a_store_of_its_own(other_prelude::function(7));
    assert_eq!(
        text.expect("a text"),
        "(Result, Option, Some, None, Ok, Err, Pin, Box, Future, Request) \
         (\"core\", \"std\", \"distlock\", \"run\", \"always\", \"pin\") 7"
    );
    returns("shadowing:held", other_prelude::seen(), &());
}

mod imports_in_the_body {
    #[derive(Debug, PartialEq)]
    pub(super) enum Outcome {
        Ok,
        Some,
    }

    #[distlock::distributed_lock(key = "shadowing:imports")]
    pub(super) async fn function() -> Result<[Outcome; 2], distlock::Error> {
        use self::Outcome as Result;
        use self::Outcome::Some;

        crate::seen::held().await;
        ::core::result::Result::Ok([Result::Ok, Some])
    }
}

#[test]
fn imports_in_the_body_do_not_reach_the_return_type() {
    use imports_in_the_body::Outcome;
    let both = [Outcome::Ok, Outcome::Some];
    returns("shadowing:imports", imports_in_the_body::function(), &both);
}

mod names_of_generated_code {
    use distlock::Error;

    #[distlock::distributed_lock(
        key = "shadowing:parameters:<__request>:<__returns>:<__fail>:<__output>",
        min_hold = "1ms",
        on_error = |error| Err(error)
    )]
    pub(super) async fn invented(
        __request: u8,
        __returns: u8,
        __fail: u8,
        __output: u8,
    ) -> Result<[u8; 4], Error> {
        Ok([__request, __returns, __fail, __output])
    }

    #[distlock::distributed_lock(key = "shadowing:<request>:<body>:<guard>:<run>:<key>:<manager>")]
    pub(super) async fn plausible(
        request: u8,
        body: u8,
        guard: u8,
        run: u8,
        key: u8,
        manager: u8,
    ) -> Result<u8, Error> {
        crate::seen::held().await;
        Ok(request + body + guard + run + key + manager)
    }

    #[distlock::distributed_lock(key = "shadowing:<core>:<std>:<distlock>:<pin>")]
    pub(super) async fn crates(core: u8, std: u8, distlock: u8, pin: u8) -> Result<u8, Error> {
        crate::seen::held().await;
        Ok(core + std + distlock + pin)
    }

    #[distlock::distributed_lock(key = "shadowing:<some>:<N>", on_error = |_| None)]
    pub(super) async fn types<Some, Pin, const N: u8>(some: Some, pin: Pin) -> Option<(Some, Pin)>
    where
        Some: ::std::fmt::Display,
    {
        crate::seen::held().await;
        Option::Some((some, pin))
    }
}

#[test]
fn parameters_called_like_generated_names() {
    use names_of_generated_code::{crates, invented, plausible, types};

    let all = on_a_store_of_its_own(invented(1, 2, 3, 4));
    assert_eq!(all.expect("all"), [1, 2, 3, 4]);
    returns("shadowing:1:2:3:4:5:6", plausible(1, 2, 3, 4, 5, 6), &21);
    returns("shadowing:1:2:3:4", crates(1, 2, 3, 4), &10);
    returns("shadowing:own-name", run(), &1);
    let both = locked("shadowing:some:9", types::<_, _, 9>("some", "pin"));
    assert_eq!(both, Some(("some", "pin")));
}

#[distlock::distributed_lock(key = "shadowing:own-name")]
async fn run() -> Result<u8, distlock::Error> {
    crate::seen::held().await;
    Ok(1)
}

/// Methods of every type, with names that generated code calls or could use to detect a success.
trait Meddler: Sized {
    fn display(&self) -> &'static str {
        "meddler"
    }
    fn as_lock_manager(&self) -> &'static str {
        "meddler"
    }
    fn literal(self) -> &'static str {
        "meddler"
    }
    fn value(self) -> &'static str {
        "meddler"
    }
    fn lease(self) -> &'static str {
        "meddler"
    }
    fn succeeded(&self) -> &'static str {
        "meddler"
    }
}

impl<T> Meddler for T {}

#[distlock::distributed_lock(key = "shadowing:traits:<n>", lease = "5s", min_hold = "1ms")]
async fn among_traits(n: u8) -> Result<[&'static str; 6], distlock::Error> {
    crate::seen::held().await;
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    Ok([
        n.display(),
        n.as_lock_manager(),
        n.literal(),
        n.value(),
        n.lease(),
        n.succeeded(),
    ])
}

#[test]
fn traits_with_methods_called_like_generated_calls() {
    returns("shadowing:traits:1", among_traits(1), &["meddler"; 6]);
}
