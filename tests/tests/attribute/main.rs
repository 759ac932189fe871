//! Every form of function that `#[distributed_lock]` takes, called under its lock.
//!
//! The lints are strict, because an annotated function must not require an `#[allow]`. Most modules
//! are compiled again with these lints forbidden (`attribute_forbid.rs`), and by a caller of
//! edition 2021 that renames the crate (`edition2021`).

#![deny(warnings, clippy::all, clippy::pedantic)]

mod async_trait;
mod drop_order;
mod foreign_abi;
mod generics;
mod injective;
mod key_fn;
mod kinds;
mod lifetimes;
mod limits;
mod macro_written;
mod native_traits;
mod nesting;
mod once;
mod options;
mod other_attributes;
mod outputs;
mod patterns;
mod policies;
mod receivers;
mod seen;
mod several_keys;
mod shadowing;
mod sizes;
mod templates;
mod values;
