//! The forms of `tests/tests/attribute`, compiled with edition 2021.

#![deny(warnings, clippy::all, clippy::pedantic)]

// The modules use the crate's usual name, unlike `renamed.rs`.
extern crate distlock_renamed as distlock;

#[path = "../../../tests/attribute/async_trait.rs"]
mod async_trait;
#[path = "../../../tests/attribute/foreign_abi.rs"]
mod foreign_abi;
#[path = "../../../tests/attribute/generics.rs"]
mod generics;
#[path = "../../../tests/attribute/key_fn.rs"]
mod key_fn;
#[path = "../../../tests/attribute/lifetimes.rs"]
mod lifetimes;
#[path = "../../../tests/attribute/macro_written.rs"]
mod macro_written;
#[path = "../../../tests/attribute/native_traits.rs"]
mod native_traits;
#[path = "../../../tests/attribute/other_attributes.rs"]
mod other_attributes;
#[path = "../../../tests/attribute/outputs.rs"]
mod outputs;
#[path = "../../../tests/attribute/patterns.rs"]
mod patterns;
#[path = "../../../tests/attribute/receivers.rs"]
mod receivers;
#[path = "../../../tests/attribute/seen.rs"]
mod seen;
#[path = "../../../tests/attribute/shadowing.rs"]
mod shadowing;
#[path = "../../../tests/attribute/templates.rs"]
mod templates;
mod unsafe_fn;
