//! Annotated functions in a crate that forbids every lint, so that nothing may be allowed for them.
//!
//! Only those forms that no other macro rewrites: tokio's and tracing's attributes allow lints.

#![forbid(unsafe_code, unreachable_code, clippy::all, clippy::pedantic, warnings)]

#[path = "attribute/generics.rs"]
mod generics;
#[path = "attribute/lifetimes.rs"]
mod lifetimes;
#[path = "attribute/macro_written.rs"]
mod macro_written;
#[path = "attribute/native_traits.rs"]
mod native_traits;
#[path = "attribute/outputs.rs"]
mod outputs;
#[path = "attribute/patterns.rs"]
mod patterns;
#[path = "attribute/receivers.rs"]
mod receivers;
#[path = "attribute/seen.rs"]
mod seen;
#[path = "attribute/shadowing.rs"]
mod shadowing;
#[path = "attribute/templates.rs"]
mod templates;
