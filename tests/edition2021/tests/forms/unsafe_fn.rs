//! The body of an `unsafe fn` needs no `unsafe` block in this edition, also below the attribute.

use distlock::Error;

use crate::seen::{held, returns};

/// # Safety
///
/// `number` is valid.
#[distlock::distributed_lock(key = "unsafe:<name>")]
async unsafe fn read(number: *const u8, name: &str) -> Result<u8, Error> {
    held().await;
    Ok(*number)
}

#[test]
fn an_unsafe_function() {
    let number = 7;
    // SAFETY: the number lives until the end of the test.
    let call = unsafe { read(&raw const number, "function") };
    returns("unsafe:function", call, &7);
}
