//! Garbage from a server: RESP values of every kind, and values that are right but for one thing.
//!
//! Values are made by proptest strategies, so that a test shrinks them and a runner draws them from a seed.

mod frame;
mod impostor;
pub mod oracle;
mod strategies;

pub use frame::Frame;
pub use impostor::{Call, Impostor, Reaction, Verb, numbered};
pub use strategies::{edge_number, junk, nearly, stream};
