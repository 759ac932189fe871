//! `#[async_trait]`, which expands before the attributes of its methods.

use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;

use async_trait::async_trait;
use distlock::Error;

use crate::seen::{held, locked};

#[async_trait]
trait Jobs: Send + Sync {
    async fn by_ref(&self, n: u8) -> Result<&str, Error>;
    async fn by_mut(&mut self, n: u8) -> Result<&mut u8, Error>;
    async fn by_arc(self: Arc<Self>, mut n: u8) -> Result<u8, Error>;
    async fn bounded<T>(&self, value: T) -> Result<String, Error>
    where
        Self: Sized,
        T: Display + Send + Sync + 'static;
    async fn taken_apart(&self, pair: (u8, u8), n: u8) -> Result<u8, Error>;
    async fn nothing(&self);

    #[distlock::distributed_lock(key = "async-trait:provided:<n>")]
    async fn provided(&self, n: u8) -> Result<u8, Error> {
        held().await;
        if n == 0 {
            return Ok(100);
        }
        Ok(n)
    }
}

struct Nightly {
    name: String,
    runs: u8,
}

fn nightly(name: &str) -> Nightly {
    Nightly {
        name: name.to_owned(),
        runs: 0,
    }
}

#[async_trait]
impl Jobs for Nightly {
    #[distlock::distributed_lock(key = "async-trait:<self.name>:<n>")]
    async fn by_ref(&self, n: u8) -> Result<&str, Error> {
        held().await;
        Ok(&self.name)
    }

    #[distlock::distributed_lock(key = "async-trait:<self.name>")]
    async fn by_mut(&mut self, n: u8) -> Result<&mut u8, Error> {
        held().await;
        self.runs += n;
        Ok(&mut self.runs)
    }

    #[distlock::distributed_lock(key = "async-trait:<self.name>:<n>")]
    async fn by_arc(self: Arc<Self>, mut n: u8) -> Result<u8, Error> {
        held().await;
        n += self.runs + 1;
        Ok(n)
    }

    #[distlock::distributed_lock(key = "async-trait:<value>")]
    async fn bounded<T>(&self, value: T) -> Result<String, Error>
    where
        T: Display + Send + Sync + 'static,
    {
        held().await;
        Ok(value.to_string())
    }

    #[distlock::distributed_lock(key = "async-trait:pattern:<n>")]
    async fn taken_apart(&self, (a, b): (u8, u8), n: u8) -> Result<u8, Error> {
        held().await;
        Ok(a + b + n)
    }

    #[distlock::distributed_lock(key = "async-trait:<self.name>", on_fail = |_| ())]
    async fn nothing(&self) {
        held().await;
    }
}

#[test]
fn a_reference() {
    let nightly = nightly("ref");
    let name = locked("async-trait:ref:1", nightly.by_ref(1));
    assert_eq!(name.expect("a name"), "ref");
}

#[test]
fn a_mutable_reference() {
    let mut nightly = nightly("mut");
    *locked("async-trait:mut", nightly.by_mut(2)).expect("runs") += 1;
    assert_eq!(nightly.runs, 3);
}

#[test]
fn an_arc_and_a_mut_parameter() {
    let nightly = Arc::new(nightly("arc"));
    assert_eq!(
        locked("async-trait:arc:4", nightly.by_arc(4)).expect("n"),
        5
    );
}

#[test]
fn generics_and_a_where_clause() {
    let nightly = nightly("where");
    let text = locked("async-trait:value", nightly.bounded("value"));
    assert_eq!(text.expect("a text"), "value");
}

#[test]
fn a_pattern_beside_the_parameter_of_the_key() {
    let jobs: Box<dyn Jobs> = Box::new(nightly("pattern"));
    let sum = locked("async-trait:pattern:3", jobs.taken_apart((1, 2), 3));
    assert_eq!(sum.expect("a sum"), 6);
}

#[test]
fn no_result() {
    let nightly = nightly("nothing");
    locked("async-trait:nothing", nightly.nothing());
}

#[test]
fn a_default_method() {
    let nightly = nightly("default");
    let n = locked("async-trait:provided:0", nightly.provided(0));
    assert_eq!(n.expect("n"), 100);
}

#[async_trait(?Send)]
trait Local {
    async fn count(&self, of: Rc<u8>) -> Result<u8, Error>;

    #[distlock::distributed_lock(key = "async-trait:local-default:<of>")]
    async fn provided_locally(&self, of: Rc<u8>) -> Result<u8, Error> {
        held().await;
        Ok(*of)
    }
}

#[async_trait(?Send)]
impl Local for Nightly {
    #[distlock::distributed_lock(key = "async-trait:local:<self.name>:<of>")]
    async fn count(&self, of: Rc<u8>) -> Result<u8, Error> {
        let kept = Rc::clone(&of);
        held().await;
        Ok(*kept)
    }
}

#[test]
fn a_local_future() {
    let local: Box<dyn Local> = Box::new(nightly("l"));
    let count = locked("async-trait:local:l:5", local.count(Rc::new(5)));
    assert_eq!(count.expect("a count"), 5);
}

#[test]
fn a_default_method_of_a_local_trait() {
    let local: Box<dyn Local> = Box::new(nightly("l"));
    let count = locked(
        "async-trait:local-default:6",
        local.provided_locally(Rc::new(6)),
    );
    assert_eq!(count.expect("a count"), 6);
}
