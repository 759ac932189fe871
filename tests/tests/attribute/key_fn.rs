//! `key_fn`: a function that returns the key of a call.

use std::fmt::Display;
use std::sync::Arc;

use distlock::Error;

use crate::seen::{held, returns};

#[distlock::distributed_lock(key = "key-fn:<item_id>", key_fn = reserve_key)]
async fn reserve(mut item_id: u64, quantity: u32) -> Result<u64, Error> {
    held().await;
    item_id += u64::from(quantity);
    Ok(item_id)
}

#[distlock::distributed_lock(key = "key-fn:<a>:<values.1>", key_fn = r#type)]
async fn patterns(
    (mut a, ref b): (u8, String),
    values @ (_, _): (u8, u8),
    &mut (ref mut c, _): &mut (u8, u8),
    _: u8,
    #[cfg(any())] missing: u8,
    #[cfg(not(any()))] there: u8,
) -> Result<usize, Error> {
    held().await;
    a += values.0;
    *c += 1;
    Ok(usize::from(a + *c + there) + b.len())
}

#[distlock::distributed_lock(key = "key-fn:<value>:<other>:<N>", key_fn = generic_key)]
async fn generic<'a, T, const N: usize>(
    value: T,
    other: impl Display,
    text: &'a str,
) -> Result<&'a str, Error>
where
    T: Display + Clone,
{
    held().await;
    let _ = (value, other);
    Ok(text)
}

/// Only the key function exists without the condition.
#[cfg(any())]
#[distlock::distributed_lock(key = "key-fn:none", key_fn = generic_key)]
async fn absent() -> Result<(), Error> {
    Ok(())
}

mod inner {
    use super::Error;

    pub(super) struct Shop {
        pub(super) name: String,
    }

    impl Shop {
        /// The key function is as visible as the method.
        #[distlock::distributed_lock(key = "key-fn:<self.name>:<item_id>", key_fn = take_key)]
        pub(super) async fn take(&self, item_id: u64) -> Result<u64, Error> {
            crate::seen::held().await;
            Ok(item_id)
        }
    }
}

use inner::Shop;

fn shop() -> Shop {
    Shop {
        name: "sh:op".to_owned(),
    }
}

impl Shop {
    #[distlock::distributed_lock(key = "key-fn:<self.name>:value", key_fn = into_key)]
    async fn by_value(mut self, more: &str) -> Result<String, Error> {
        held().await;
        self.name += more;
        Ok(self.name.clone())
    }

    #[distlock::distributed_lock(key = "key-fn:<self.name>:arc", key_fn = arc_key)]
    async fn by_arc(self: Arc<Self>) -> Result<usize, Error> {
        held().await;
        Ok(Arc::strong_count(&self))
    }

    #[distlock::distributed_lock(key = "key-fn:mut", key_fn = mut_key)]
    async fn by_mut(&mut self) -> Result<(), Error> {
        held().await;
        self.name.clear();
        Ok(())
    }

    #[distlock::distributed_lock(key = "key-fn:none:<n>", key_fn = none_key)]
    async fn none(n: u8) -> Result<u8, Error> {
        held().await;
        Ok(n)
    }
}

#[test]
fn a_function_has_the_key_of_the_call() {
    let key = reserve_key(7, 1).expect("a key");
    assert_eq!(key, "key-fn:7");
    returns(&key, reserve(7, 1), &8);

    let mut pair = (1, 2);
    let arguments = || ((3, "b".to_owned()), (4, 5));
    let (first, second) = arguments();
    let key = r#type(first, second, &mut pair, 0, 6).expect("a key");
    assert_eq!(key, "key-fn:3:5");
    let (first, second) = arguments();
    returns(&key, patterns(first, second, &mut pair, 0, 6), &16);

    let key = generic_key::<_, 3>("a:b", 2, "text").expect("a key");
    assert_eq!(key, "key-fn:a%3Ab:2:3");
    returns(&key, generic::<_, 3>("a:b", 2, "text"), &"text");
}

#[test]
fn a_method_has_the_key_of_the_call() {
    let key = shop().take_key(7).expect("a key");
    assert_eq!(key, "key-fn:sh%3Aop:7");
    returns(&key, shop().take(7), &7);
    let key = shop().into_key("s").expect("a key");
    returns(&key, shop().by_value("s"), &"sh:ops");
    let key = Arc::new(shop()).arc_key().expect("a key");
    returns(&key, Arc::new(shop()).by_arc(), &1);
    let key = shop().mut_key().expect("a key");
    returns(&key, shop().by_mut(), &());
    returns(&Shop::none_key(1).expect("a key"), Shop::none(1), &1);
}

#[test]
fn a_key_is_checked_as_by_the_call() {
    let error = generic_key::<_, 3>("", 2, "text").expect_err("an empty value");
    assert!(matches!(error, Error::InvalidValue { .. }), "{error:?}");
    assert!(error.to_string().contains("`value`"), "{error}");
    let error = generic_key::<_, 3>("x".repeat(600), 2, "").expect_err("a long value");
    assert!(matches!(error, Error::InvalidValue { .. }), "{error:?}");
}
