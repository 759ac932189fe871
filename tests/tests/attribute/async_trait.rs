//! `#[async_trait]`, which expands before the attributes of its methods.

use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;

use async_trait::async_trait;
use distlock::Error;

use crate::seen::{held, locked, returns};

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

    #[distlock::distributed_lock(key = "async-trait:<self.name>", on_error = |_| ())]
    async fn nothing(&self) {
        held().await;
    }
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
fn methods_of_every_kind() {
    returns("async-trait:ref:1", nightly("ref").by_ref(1), &"ref");
    let mut changed = nightly("mut");
    *locked("async-trait:mut", changed.by_mut(2)).expect("runs") += 1;
    assert_eq!(changed.runs, 3);
    let shared = Arc::new(nightly("arc"));
    returns("async-trait:arc:4", shared.by_arc(4), &5);
    let where_clause = nightly("where");
    returns("async-trait:value", where_clause.bounded("value"), &"value");
    let jobs: Box<dyn Jobs> = Box::new(nightly("pattern"));
    returns("async-trait:pattern:3", jobs.taken_apart((1, 2), 3), &6);
    locked("async-trait:nothing", nightly("nothing").nothing());
    returns("async-trait:provided:0", jobs.provided(0), &100);
}

#[test]
fn methods_of_a_local_trait() {
    let local: Box<dyn Local> = Box::new(nightly("l"));
    returns("async-trait:local:l:5", local.count(Rc::new(5)), &5);
    let provided = local.provided_locally(Rc::new(6));
    returns("async-trait:local-default:6", provided, &6);
}
