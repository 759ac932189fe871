//! Garbage from a server: RESP values of every kind, and replies that are right but for one thing.
//!
//! They are made by proptest strategies, so that a test shrinks them and a runner draws them from a
//! seed.

mod frame;
mod generator;
mod impostor;
pub mod oracle;

pub use frame::Frame;
pub use generator::{NONSENSE, Names, junk, push, reply, right, stream};
pub use impostor::{Call, Impostor, Reaction, Then, Verb};
