//! The work on a manager's acquisitions: acquire, renew, check queues, release, shut down.

pub(crate) mod acquire;
pub(crate) mod backlog;
pub(crate) mod core;
pub(crate) mod events;
pub(crate) mod executor;
pub(crate) mod held;
pub(crate) mod look;
pub(crate) mod release;
pub(crate) mod renewals;
pub(crate) mod shutdown;
pub(crate) mod sole;
pub(crate) mod table;
pub(crate) mod watch;
