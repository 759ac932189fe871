//! Which saboteur this process runs with.

use distlock::__inside::Rules;

/// The environment variable that names it, for the library's side too.
pub(crate) const VARIABLE: &str = "DISTLOCK_SABOTAGE";

/// The rules that this process keeps.
pub(crate) fn rules() -> Rules {
    Rules::in_force()
}
