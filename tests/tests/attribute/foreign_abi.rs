//! Forms for which a plain function would need an `#[allow]`, too.

use distlock::Error;

use crate::seen::{held, locked};

#[allow(improper_ctypes_definitions)]
#[distlock::distributed_lock(key = "abi:<n>")]
async extern "C" fn extern_c(n: u8) -> Result<u8, Error> {
    held().await;
    Ok(n)
}

#[test]
fn extern_c_functions() {
    assert_eq!(locked("abi:1", extern_c(1)).expect("a number"), 1);
}

#[distlock::distributed_lock(key = "abi:parameters")]
async fn attributes_on_parameters(#[allow(unused_variables)] n: u8) -> Result<(), Error> {
    held().await;
    Ok(())
}

#[test]
fn lints_are_allowed_for_one_parameter() {
    locked("abi:parameters", attributes_on_parameters(1)).expect("no failure");
}

#[distlock::distributed_lock(key = "abi:inner")]
async fn inner_attributes() -> Result<u8, Error> {
    #![allow(unused_mut)]
    held().await;
    let mut n = 1;
    Ok(n)
}

#[test]
fn lints_are_allowed_for_one_body() {
    assert_eq!(locked("abi:inner", inner_attributes()).expect("it"), 1);
}
