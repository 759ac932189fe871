//! The protocol: commands, replies and deadlines. Nothing here does I/O, awaits, or reads a clock.

pub(crate) mod belief;
pub(crate) mod claim;
pub(crate) mod outcome;
pub(crate) mod request;
pub(crate) mod rules;
pub(crate) mod timing;
pub(crate) mod trouble;
pub(crate) mod words;
