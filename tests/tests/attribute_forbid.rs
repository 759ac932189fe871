//! Annotated functions in a crate that forbids every lint, so that no `#[allow]` is possible.
//!
//! Without forms that another macro rewrites: the attributes of tokio and tracing allow lints.

#![forbid(unsafe_code, unreachable_code, clippy::all, clippy::pedantic, warnings)]

#[path = "attribute/generics.rs"]
mod generics;
#[path = "attribute/key_fn.rs"]
mod key_fn;
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
