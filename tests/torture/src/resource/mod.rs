//! The resource that the locks protect: a process of its own that no fault ever hits.

mod client;
mod fence;
mod protocol;
mod server;
mod things;

pub(crate) use client::Pool;
pub(crate) use protocol::{Access, Answer, Request};
pub(crate) use server::{Args, run};
