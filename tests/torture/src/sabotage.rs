//! Which saboteur this process runs with.

use distlock::__inside::Rules;
use distlock::LockManagerBuilder;

/// The environment variable that names it, for the library's side too.
pub(crate) const VARIABLE: &str = "DISTLOCK_SABOTAGE";

/// The rules that this process keeps.
pub(crate) fn rules() -> Rules {
    Rules::in_force()
}

/// A manager as this process makes it.
#[cfg(not(sabotage))]
pub(crate) fn sabotaged(builder: LockManagerBuilder) -> LockManagerBuilder {
    builder
}

/// A manager as this process makes it: of broken parts, if the saboteur breaks one.
#[cfg(sabotage)]
pub(crate) fn sabotaged(builder: LockManagerBuilder) -> LockManagerBuilder {
    let saboteur = std::env::var(VARIABLE).unwrap_or_default();
    distlock::__inside::sabotage::sabotaged(builder, &saboteur)
}
