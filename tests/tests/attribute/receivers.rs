//! Every receiver that a method can have.

use std::pin::Pin;
use std::sync::Arc;

use distlock::Error;

use crate::seen::{held, returns};

#[derive(Debug, PartialEq)]
struct Shop {
    name: String,
    visits: u32,
}

fn shop(name: &str) -> Shop {
    Shop {
        name: name.to_owned(),
        visits: 1,
    }
}

impl Shop {
    #[distlock::distributed_lock(key = "receivers:none:<visits>")]
    async fn none(visits: u32) -> Result<Self, Error> {
        held().await;
        Ok(Shop {
            visits,
            ..shop("new")
        })
    }

    #[distlock::distributed_lock(key = "receivers:<self.name>")]
    async fn by_ref(&self) -> Result<u32, Error> {
        held().await;
        Ok(self.visits)
    }

    #[distlock::distributed_lock(key = "receivers:<self.name>")]
    async fn by_mut(&mut self) -> Result<u32, Error> {
        held().await;
        self.visits += 1;
        Ok(self.visits)
    }

    #[distlock::distributed_lock(key = "receivers:<self.name>")]
    async fn by_value(self) -> Result<Self, Error> {
        held().await;
        Ok(self)
    }

    #[distlock::distributed_lock(key = "receivers:<self.name>")]
    async fn by_mut_value(mut self) -> Result<Self, Error> {
        held().await;
        self.visits += 1;
        Ok(self)
    }

    #[distlock::distributed_lock(key = "receivers:<self.name>")]
    async fn by_arc(self: Arc<Self>) -> Result<Arc<Self>, Error> {
        held().await;
        Ok(self)
    }

    #[distlock::distributed_lock(key = "receivers:<self.name>")]
    async fn by_ref_of_arc(self: &Arc<Self>) -> Result<&str, Error> {
        held().await;
        Ok(&self.name)
    }

    #[distlock::distributed_lock(key = "receivers:<self.name>")]
    async fn by_box(self: Box<Self>) -> Result<String, Error> {
        held().await;
        Ok(self.name)
    }

    #[distlock::distributed_lock(key = "receivers:<self.name>")]
    async fn by_pin(mut self: Pin<&mut Self>) -> Result<u32, Error> {
        held().await;
        self.visits += 1;
        Ok(self.visits)
    }
}

#[test]
fn every_receiver() {
    let new = Shop {
        visits: 7,
        ..shop("new")
    };
    returns("receivers:none:7", Shop::none(7), &new);
    returns("receivers:ref", shop("ref").by_ref(), &1);
    let mut changed = shop("mut");
    returns("receivers:mut", changed.by_mut(), &2);
    assert_eq!(changed.visits, 2);
    let value = shop("value").by_value();
    returns("receivers:value", value, &shop("value"));
    let twice = Shop {
        visits: 2,
        ..shop("mut-value")
    };
    returns(
        "receivers:mut-value",
        shop("mut-value").by_mut_value(),
        &twice,
    );
    let shared = Arc::new(shop("arc"));
    returns("receivers:arc", Arc::clone(&shared).by_arc(), &shared);
    let shared = Arc::new(shop("ref-arc"));
    returns("receivers:ref-arc", shared.by_ref_of_arc(), &"ref-arc");
    let boxed = Box::new(shop("box"));
    returns("receivers:box", boxed.by_box(), &"box");
    let mut pinned = shop("pin");
    returns("receivers:pin", Pin::new(&mut pinned).by_pin(), &2);
}
