//! Garbage from a server: RESP values of every kind, and replies with a few mistakes.
//!
//! They are proptest strategies, so that tests shrink them and runners draw them from a seed.

mod frame;
mod generator;
mod impostor;
pub mod oracle;

pub use frame::Frame;
pub use generator::{NONSENSE, Names, junk, push, reply, right, stream};
pub use impostor::{Call, Impostor, Reaction, Then, Verb};
