//! Values of a call that cannot be used, and holds that the body finds without writing the key.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use distlock::{Error, LockManager, distributed_lock, escape, with_manager};

use crate::seen::{block_on, on_a_store_of_its_own};

/// A date whose `Display` fails after the month.
struct CutOff(u8);

impl fmt::Display for CutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("2026-")?;
        match self.0 {
            0 => f.write_str("11"),
            _ => Err(fmt::Error),
        }
    }
}

#[distributed_lock(key = "values:<day>", key_fn = report_key)]
async fn report(day: &CutOff) -> Result<(), Error> {
    assert_eq!(day.0, 0);
    Ok(())
}

#[distributed_lock(keys = ["values:a:<text>", "values:<day>-<text>"], key_fn = both_keys)]
async fn both(day: &CutOff, text: &str) -> Result<(), Error> {
    assert_eq!((day.0, text.is_empty()), (0, false));
    Ok(())
}

#[distributed_lock(key = "values:once", once_for = day)]
async fn once(day: &(impl fmt::Display + ?Sized)) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "values:<shop>:<order.0>", permits = 3, weight = weight)]
async fn ship(shop: &str, order: &(String, u8), weight: u32) -> Result<(), Error> {
    assert_eq!(order.1, 1);
    Ok(())
}

#[test]
fn a_display_that_fails_is_an_invalid_key() {
    let locks = LockManager::in_memory();
    block_on(with_manager(locks.clone(), async {
        report(&CutOff(0)).await.expect("a whole date");
        both(&CutOff(0), "b").await.expect("whole keys");
        once(&CutOff(0)).await.expect("a whole value");
        let by_hand = locks.lock(format!("values:{}", escape(CutOff(1))));
        let value = locks.lock("values:once").once_for(CutOff(1));
        let run = value.run(async |_| Ok::<_, Error>(()));
        let errors = [
            report(&CutOff(1)).await.expect_err("report"),
            report_key(&CutOff(1)).expect_err("report_key"),
            both(&CutOff(1), "b").await.expect_err("both"),
            both_keys(&CutOff(1), "b").expect_err("both_keys"),
            once(&CutOff(1)).await.expect_err("once"),
            by_hand.acquire().await.expect_err("by hand"),
            locks.inspect(by_hand.key()).await.expect_err("inspect"),
            run.await.expect_err("value"),
        ];
        for error in errors {
            assert!(matches!(error, Error::InvalidKey { .. }), "{error:?}");
            assert!(error.to_string().contains("fix that `Display`"), "{error}");
        }
    }));
}

#[test]
fn a_value_that_does_not_fit_is_named_with_the_limit() {
    let long = |count| "x".repeat(count);
    let ship = |shop: &str, order, weight| on_a_store_of_its_own(ship(shop, &(order, 1), weight));
    let once = |value: &str| on_a_store_of_its_own(once(value));
    // The text of the template, and the value of the other placeholder, have 9 bytes.
    for fits in [
        ship("a", long(503), 3),
        ship("a b", "c".into(), 1),
        once(&long(128)),
        once("\n"),
    ] {
        fits.expect("a legal value");
    }
    for (result, placeholder, part) in [
        (ship("", "c".into(), 1), "shop", ":<shop>:<order.0>\""),
        (ship("a", String::new(), 1), "order.0", "is empty"),
        (ship("a", long(504), 1), "order.0", "at most 512"),
        (ship("a", " ".repeat(200), 1), "order.0", "takes 600 of"),
        (ship(&long(600), long(10), 1), "shop", "at most 512"),
        (ship("a", "c".into(), 0), "weight", "at least 1"),
        (ship("a", "c".into(), 4), "weight", "of permits, 3"),
        (
            on_a_store_of_its_own(both(&CutOff(0), "")),
            "text",
            "is empty",
        ),
        (once(""), "once_for", "is empty"),
        (once(&long(129)), "once_for", "shorten it to 128"),
        (once(&"é".repeat(65)), "once_for", "130 bytes"),
    ] {
        let error = result.expect_err(placeholder);
        assert!(error.to_string().contains(part), "{error}");
        match error {
            Error::InvalidValue {
                placeholder: named, ..
            } => assert_eq!(named, placeholder),
            other => panic!("{placeholder}: {other:?}"),
        }
    }
}

#[distributed_lock(
    keys = ["account:<from>", "account:<to>", "{audit:}"],
    key_fn = transfer_keys
)]
async fn transfer(from: &str, to: &str) -> Result<[String; 3], Error> {
    assert!(distlock::try_current_at(3).is_none());
    Ok([0, 1, 2].map(|position| distlock::current_at(position).key().to_owned()))
}

#[distributed_lock(keys = ["single:<n>"], key_fn = single_keys)]
async fn single(n: u8) -> Result<String, Error> {
    Ok(distlock::current_at(0).key().to_owned())
}

/// Calls another body, which has its own keys.
#[distributed_lock(keys = ["nested:b", "nested:a"])]
async fn nested() -> Result<(), Error> {
    assert_eq!(single(1).await?, "single:1");
    assert_eq!(distlock::current_at(0).key(), "nested:b");
    assert_eq!(distlock::current_at(1).key(), "nested:a");
    Ok(())
}

#[test]
fn the_keys_of_a_call_have_positions() {
    block_on(with_manager(LockManager::in_memory(), async {
        // The store has another order, and equal keys are one lock.
        for (from, to) in [("z z", "b"), ("b", "z z"), ("b", "b")] {
            let keys = transfer(from, to).await.expect("locks");
            assert_eq!(keys, transfer_keys(from, to).expect("keys"));
            assert_eq!(keys[0], format!("account:{}", escape(from)));
        }
        let [key] = single_keys(7).expect("a key");
        assert_eq!(single(7).await.expect("a lock"), key);
        nested().await.expect("locks");
    }));
}

fn panic_of<T>(look: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| drop(look()))).expect_err("a panic");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().expect("a text")).to_owned(),
    }
}

#[test]
fn a_lock_that_is_not_held_is_a_panic_with_the_remedy() {
    let locks = LockManager::in_memory();
    block_on(async {
        let outer = locks.lock("account:p%20q").acquire().await.expect("a lock");
        let inner = locks.lock_all(["to:a%3Ab", "move-a%2Db-c"]).acquire().await;
        let (inner, semaphore) = (inner.expect("locks"), locks.semaphore("smtp", 2));
        let permit = semaphore.acquire().await.expect("a permit");
        let of_key = |key: &'static str| panic_of(|| distlock::current_for(key));
        outer
            .scope(inner.scope(async {
                for (text, part) in [
                    (of_key("account:p q"), "`account:p%20q`: use `escape`"),
                    (of_key("to:a:b"), "you hold `to:a%3Ab`: use `escape`"),
                    (of_key("move-a-b-c"), "`move-a%2Db-c`: use `escape`"),
                    (of_key("to:c"), "`move-a%2Db-c`"),
                    (of_key("to:c"), "`account:p%20q`"),
                    (panic_of(|| distlock::current_at(2)), "fewer keys"),
                ] {
                    assert!(text.contains(part), "{text} lacks {part}");
                }
                assert!(!of_key("to:c").contains("use `escape`"));
            }))
            .await;
        outer
            .scope(permit.scope(async {
                assert!(distlock::try_current().is_none(), "the outer lock");
                assert!(distlock::try_current_at(0).is_none(), "the outer lock");
                let at = panic_of(|| distlock::current_at(0));
                for text in [panic_of(distlock::current), at, of_key("smtp")] {
                    let parts = ["permits", "current_permit"];
                    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
                }
                // A key that is named is found in an outer body too.
                let named = distlock::current_for("account:p%20q");
                assert_eq!(named.key(), "account:p%20q");
            }))
            .await;
    });
    let outside = [
        panic_of(|| distlock::current_at(0)),
        panic_of(|| distlock::current_for("k")),
    ];
    for text in outside {
        assert!(text.contains("a spawned task is outside too"), "{text}");
    }
}
