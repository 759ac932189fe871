//! The log lines, spans and events of a manager.

pub(crate) mod data_loss;
pub(crate) mod hold_events;
pub(crate) mod logging;
pub(crate) mod long_waits;
pub(crate) mod record_report;
pub(crate) mod span;
