//! Forms for which a plain function would also need an `#[allow]`.

use distlock::Error;

use crate::seen::{held, returns};

#[allow(improper_ctypes_definitions)]
#[distlock::distributed_lock(key = "abi:<n>")]
async extern "C" fn extern_c(n: u8) -> Result<u8, Error> {
    held().await;
    Ok(n)
}

#[distlock::distributed_lock(key = "abi:parameters")]
async fn attributes_on_parameters(#[allow(unused_variables)] n: u8) -> Result<(), Error> {
    held().await;
    Ok(())
}

#[distlock::distributed_lock(key = "abi:inner")]
async fn inner_attributes() -> Result<u8, Error> {
    #![allow(unused_mut)]
    held().await;
    let mut n = 1;
    Ok(n)
}

#[test]
fn forms_that_need_an_allow() {
    returns("abi:1", extern_c(1), &1);
    returns("abi:parameters", attributes_on_parameters(1), &());
    returns("abi:inner", inner_attributes(), &1);
}
