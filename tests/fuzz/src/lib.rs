//! A server that answers garbage, against a real `LockManager`: nothing panics, not even on the I/O thread; no
//! call gets a guard that the server's bytes do not prove; every call ends in time.
//!
//! `cargo run --release -p fuzz -- --seconds 60 --seed 1` runs cases until the time is over, each from a seed
//! of its own; `--seed N --cases 1` runs one again. `cargo test -p fuzz` runs a bounded number of them.
//!
//! The garbage is drawn by the strategies of `distlock_tests::garbage`, which the unit tests of the Redis store
//! share; there, single answers are judged and shrunk. No libFuzzer: it needs a nightly compiler and a workspace
//! of its own, and its mutations of bytes hardly ever get past the RESP parser. What is drawn here is right but
//! for one thing, so it reaches the code that decides. The same seed draws the same garbage in the same order;
//! which command it answers also depends on the timing of the two connections.

mod case;
mod panics;
mod server;

pub use case::{Tally, run};
