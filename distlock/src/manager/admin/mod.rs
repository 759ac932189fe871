//! Administrative operations: inspect, list and revoke locks, and support for `distlock doctor`.

pub mod doctor;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod records;
pub(crate) mod revoke;
