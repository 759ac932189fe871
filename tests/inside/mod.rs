//! Tests that need to see the inside of the library. They are compiled into its unit tests (see `lib.rs`), and the
//! published package does not have them.

#[path = "../equivalence/mod.rs"]
mod equivalence;
pub(crate) mod seeded;
#[path = "../simulation/mod.rs"]
mod simulation;
