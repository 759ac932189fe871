//! Operations for operators: inspect, list and unlock locks, and support for `distlock doctor`.

pub mod doctor;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod revoke;
