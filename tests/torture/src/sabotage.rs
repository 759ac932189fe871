//! Which saboteur this process runs with.

/// The environment variable that names it, for the library's side too.
pub(crate) const VARIABLE: &str = "DISTLOCK_SABOTAGE";

/// Whether this process runs with the saboteur of that name.
pub(crate) fn is(name: &str) -> bool {
    std::env::var(VARIABLE).is_ok_and(|chosen| chosen == name)
}
