//! The schema that this client needs.

use crate::store::postgres::errors::INSTALL;

pub(crate) const TABLES: &str = include_str!("../../../sql/schema.sql");
pub(crate) const FUNCTIONS: &str = include_str!("../../../sql/functions.sql");

/// The version of the schema that this client needs, and that it is a client of.
pub(super) const VERSION: i32 = 1;

/// Checks that this client may use a schema. The error says what to do.
pub(super) fn check_version(version: i32, oldest_client: i32) -> Result<(), String> {
    if version < VERSION {
        return Err(format!(
            "the schema `distlock` has version {version}, and this client needs {VERSION}; {INSTALL}"
        ));
    }
    if oldest_client > VERSION {
        return Err(format!(
            "the schema `distlock` needs a client of version {oldest_client} or newer, and this one has {VERSION}; upgrade \
             distlock"
        ));
    }
    Ok(())
}
