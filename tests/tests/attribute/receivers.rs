//! Every receiver that a method can have.

use std::pin::Pin;
use std::sync::Arc;

use distlock::Error;

use crate::seen::{held, locked};

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
fn no_receiver() {
    let new = locked("receivers:none:7", Shop::none(7));
    assert_eq!(new.expect("a shop").visits, 7);
}

#[test]
fn a_reference() {
    let visits = locked("receivers:ref", shop("ref").by_ref());
    assert_eq!(visits.expect("visits"), 1);
}

#[test]
fn a_mutable_reference() {
    let mut shop = shop("mut");
    let visits = locked("receivers:mut", shop.by_mut());
    assert_eq!(visits.expect("visits"), 2);
    assert_eq!(shop.visits, 2);
}

#[test]
fn a_value() {
    let shop = locked("receivers:value", shop("value").by_value());
    assert_eq!(shop.expect("a shop").name, "value");
}

#[test]
fn a_mutable_value() {
    let shop = locked("receivers:mut-value", shop("mut-value").by_mut_value());
    assert_eq!(shop.expect("a shop").visits, 2);
}

#[test]
fn an_arc() {
    let shop = Arc::new(shop("arc"));
    let same = locked("receivers:arc", Arc::clone(&shop).by_arc());
    assert!(Arc::ptr_eq(&shop, &same.expect("a shop")));
}

#[test]
fn a_reference_of_an_arc() {
    let shop = Arc::new(shop("ref-arc"));
    let name = locked("receivers:ref-arc", shop.by_ref_of_arc());
    assert_eq!(name.expect("a name"), "ref-arc");
}

#[test]
fn a_box() {
    let name = locked("receivers:box", Box::new(shop("box")).by_box());
    assert_eq!(name.expect("a name"), "box");
}

#[test]
fn a_pin() {
    let mut shop = shop("pin");
    let visits = locked("receivers:pin", Pin::new(&mut shop).by_pin());
    assert_eq!(visits.expect("visits"), 2);
}
