//! What the proofs of this project see of the inside of the library, and those tests that need to be there. It is
//! compiled into the library wherever the flag `distlock_inside` is set (`.cargo/config.toml`).

pub use crate::protocol::rules::Rules;

#[cfg(test)]
#[path = "../equivalence/mod.rs"]
mod equivalence;
#[cfg(any(sabotage, test))]
#[cfg_attr(
    not(sabotage),
    allow(dead_code, reason = "its tests run in every build")
)]
#[path = "../sabotage/mod.rs"]
pub mod sabotage;
#[cfg(test)]
pub(crate) mod seeded;
#[cfg(test)]
#[path = "../simulation/mod.rs"]
mod simulation;
