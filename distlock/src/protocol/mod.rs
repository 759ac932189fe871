//! The protocol: commands, replies and deadlines. Nothing here does I/O, awaits, or reads a clock.

pub(crate) mod acquisition;
pub(crate) mod hold;
pub(crate) mod kind;
pub(crate) mod messages;
pub(crate) mod once;
pub(crate) mod outcome;
pub(crate) mod request;
pub(crate) mod rules;
pub(crate) mod store_error;
pub(crate) mod timing;
