//! The log lines, spans and events of a manager.

pub(crate) mod call;
pub(crate) mod long_waits;
pub(crate) mod lost;
pub(crate) mod observed;
pub(crate) mod report;
pub(crate) mod span;
