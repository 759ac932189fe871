//! Pushed grants: a push delivers them, they are as old as the push, and short until confirmed.

use distlock_tests::{After, Directions, within};

use crate::contended::Contended;
use crate::support::{HELD, LONG, acquired, grant_lease, hold, lock_key, ms, ok, until_clean};

/// Returns text that only a confirmation of `k` contains: a script whose only key is the lock, over the
/// connection for commands.
fn confirmation() -> String {
    let lock = lock_key("k");
    format!("$1\r\n1\r\n${}\r\n{lock}\r\n", lock.len())
}

/// A confirmation is repeated if its reply is lost, and counts if its reply is slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_confirmed_over_a_bad_connection() {
    for lost in [Some(After::Reset), Some(After::Silence), None] {
        // An unconfirmed grant lasts for a second, which is too short for a busy machine.
        let mut rounds = 1..=10;
        while !is_confirmed(lost).await {
            assert!(rounds.next().is_some(), "{lost:?}: lost in every round");
        }
    }
}

/// Returns true if a grant is confirmed without its first reply, or with slow replies.
async fn is_confirmed(without: Option<After>) -> bool {
    let mut this = Contended::warm(HELD).await;
    match without {
        Some(after) => this.proxy.swallow_reply_to(&confirmation(), after),
        None => this.proxy.delay(Directions::ToClient, ms(200)),
    }
    this.guard.release().await.unwrap();
    let guard = acquired(this.waiting).await;
    let is_confirmed = within(LONG, guard.confirmed()).await.is_ok();
    let swallowed = this.proxy.stats().replies_swallowed;
    assert_eq!(swallowed, u64::from(without.is_some()));
    // Twice the time that an unconfirmed grant lasts.
    let lost = tokio::time::timeout(ms(2_500), guard.lost()).await;
    let _ = guard.release().await;
    until_clean(&mut this.raw, LONG).await;
    is_confirmed && lost.is_err()
}

/// A slow connection delays its pushes, and is replaced when it is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pushed_grant_is_as_old_as_its_message() {
    let (lease, slow) = (ms(5_000), ms(300));
    let mut this = Contended::warm(lease).await;
    this.proxy.delay(Directions::ToClient, slow);
    this.guard.release().await.unwrap();
    let guard = acquired(this.waiting).await;
    let remaining = guard.remaining();
    // Valid for the rest of the grant, unless it was confirmed first.
    let short = grant_lease(lease) - slow;
    assert!(
        remaining < short || remaining > grant_lease(lease),
        "{remaining:?} of {short:?} left"
    );
    assert!(remaining < lease - slow, "{remaining:?} left");
    // A late hold may have been lost.
    let _ = guard.release().await;
    until_clean(&mut this.raw, LONG).await;
    this.proxy.reset_connections();
    let guard = hold(&this.waiter, "k", lease).await;
    guard.release().await.unwrap();
}

/// A body that runs under one grant does not take a later one for its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirmation_of_another_grant_is_a_loss() {
    // Renewals, which compare tokens too, are ten seconds apart.
    let (lease, before_renewals) = (ms(60_000), ms(8_000));
    let mut this = Contended::warm(lease).await;
    // The grant arrives, and its confirmation is held up.
    this.proxy.stop_reading(Directions::ToServer, true);
    this.guard.release().await.unwrap();
    let guard = acquired(this.waiting).await;
    // Meanwhile the server grants again: a late acquire of the same owner gets the next token.
    let token = guard.fencing_token();
    let value = this.raw.get(&lock_key("k")).expect("it is granted");
    let next = value.replacen(&token.to_string(), &(token.get() + 1).to_string(), 1);
    assert_ne!(value, next);
    let set = ["SET", &lock_key("k"), &next, "PX", "60000"];
    ok(&mut this.raw, &set);
    this.proxy.stop_reading(Directions::ToServer, false);
    let (error, confirmed) = within(before_renewals, async {
        tokio::join!(guard.lost(), guard.confirmed())
    })
    .await;
    assert!(error.is_lost(), "{error:?}");
    assert!(confirmed.unwrap_err().is_lost());
    // No body runs under the later grant, so it is released before its lease ends.
    until_clean(&mut this.raw, LONG).await;
}
