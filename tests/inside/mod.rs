//! What the proofs of this project see of the inside of the library, and those tests that need to be there. It is
//! compiled into the library wherever the flag `distlock_inside` is set (`.cargo/config.toml`).

pub use crate::protocol::rules::Rules;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::runtime::Handle;

use crate::LockManagerBuilder;
use crate::store::redis::wire::scripts::{ScriptId, Scripts};

/// A manager that opens a lane on each runtime with its first call, for a test makes few. The environment variable
/// `DISTLOCK_RUNTIME_CONNECTIONS` says how many.
///
/// # Panics
///
/// When that is no number.
pub fn lanes_at_once(mut builder: LockManagerBuilder) -> LockManagerBuilder {
    builder.parts.lane_after = 1;
    match std::env::var("DISTLOCK_RUNTIME_CONNECTIONS") {
        Ok(many) => builder.max_runtime_connections(
            many.parse()
                .expect("DISTLOCK_RUNTIME_CONNECTIONS is a number"),
        ),
        Err(_) => builder,
    }
}

/// A manager whose clock is so many milliseconds ahead of the machine's.
pub fn clock_ahead(mut builder: LockManagerBuilder, by: Arc<AtomicU64>) -> LockManagerBuilder {
    builder.parts.clock = Arc::new(ahead::Ahead(by));
    builder
}

/// A manager whose background work runs on this runtime, where its tasks can be counted.
pub fn running_on(mut builder: LockManagerBuilder, runtime: Handle) -> LockManagerBuilder {
    builder.parts.elsewhere = Some(runtime);
    builder
}

/// The names of the scripts of a single server, by their hashes.
pub fn script_hashes() -> [(String, String); 7] {
    let scripts = Scripts::ours();
    let named = [
        ("ask", ScriptId::Ask),
        ("confirm", ScriptId::Confirm),
        ("renew", ScriptId::Renew),
        ("release", ScriptId::Release),
        ("look", ScriptId::Look),
        ("inspect", ScriptId::Inspect),
        ("probe", ScriptId::Probe),
    ];
    named.map(|(name, id)| (scripts.get(id).hash.clone(), name.to_owned()))
}

mod ahead;
#[cfg(test)]
#[path = "../equivalence/mod.rs"]
mod equivalence;
#[cfg(any(sabotage, test))]
#[cfg_attr(
    not(sabotage),
    allow(dead_code, reason = "its tests run in every build")
)]
#[path = "../sabotage/mod.rs"]
pub(crate) mod sabotage;
#[cfg(test)]
pub(crate) mod seeded;
#[cfg(test)]
#[path = "../simulation/mod.rs"]
mod simulation;
