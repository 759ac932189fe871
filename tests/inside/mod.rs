//! Internals that the proofs of this project use, and tests that must be inside the library.
//! Compiled into the library if the flag `distlock_inside` is set (`.cargo/config.toml`).

pub use self::pair::Pair;
pub use crate::protocol::rules::Rules;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::runtime::Handle;

use crate::LockManagerBuilder;
use crate::store::redis::wire::scripts::{ScriptId, Scripts};

/// Makes the manager open a runtime connection with the first call on each runtime, because a test
/// makes few calls. The environment variable `DISTLOCK_RUNTIME_CONNECTIONS` sets how many.
///
/// # Panics
///
/// If `DISTLOCK_RUNTIME_CONNECTIONS` is not a number.
pub fn runtime_connections_at_once(mut builder: LockManagerBuilder) -> LockManagerBuilder {
    builder.dependencies.runtime_connection_after = 1;
    match std::env::var("DISTLOCK_RUNTIME_CONNECTIONS") {
        Ok(many) => builder.max_runtime_connections(
            many.parse()
                .expect("DISTLOCK_RUNTIME_CONNECTIONS is a number"),
        ),
        Err(_) => builder,
    }
}

/// Returns the functions of PostgreSQL as a saboteur breaks them.
#[cfg(all(sabotage, feature = "postgres"))]
pub fn postgres_functions(saboteur: &str) -> String {
    sabotage::postgres::functions(saboteur)
}

/// Sets the manager's clock ahead of the machine's by this many milliseconds.
pub fn clock_ahead(mut builder: LockManagerBuilder, by: Arc<AtomicU64>) -> LockManagerBuilder {
    builder.dependencies.clock = Arc::new(ahead::Ahead(by));
    builder
}

/// Sets the runtime of the manager's background work, so that its tasks can be counted.
pub fn running_on(mut builder: LockManagerBuilder, runtime: Handle) -> LockManagerBuilder {
    builder.dependencies.background_runtime = Some(runtime);
    builder
}

/// Returns the name, the hash and the text of each script of a mutex on a single server, as clients
/// send it.
pub fn scripts() -> [(&'static str, String, String); 7] {
    let scripts = Scripts::bundled();
    let named = [
        ("acquire", ScriptId::Acquire),
        ("confirm", ScriptId::Confirm),
        ("renew", ScriptId::Renew),
        ("release", ScriptId::Release),
        ("check_queue", ScriptId::CheckQueue),
        ("inspect", ScriptId::Inspect),
        ("probe", ScriptId::Probe),
    ];
    named.map(|(name, id)| {
        let script = scripts.get(id);
        (name, script.hash.clone(), script.source.clone())
    })
}

mod ahead;
#[cfg(test)]
#[path = "../equivalence/mod.rs"]
mod equivalence;
mod pair;
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
