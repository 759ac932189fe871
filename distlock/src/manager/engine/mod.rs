//! The work on a manager's acquisitions: acquire, renew, check queues, release, shut down.

pub(crate) mod acquire;
pub(crate) mod core;
pub(crate) mod driver;
pub(crate) mod events;
pub(crate) mod executor;
pub(crate) mod held;
pub(crate) mod queue_check;
pub(crate) mod registry;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod renewal_monitor;
pub(crate) mod report;
pub(crate) mod shutdown;
pub(crate) mod sync_future;
