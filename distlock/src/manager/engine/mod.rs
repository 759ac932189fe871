//! The work on a manager's acquisitions: acquire, renew, check queues, release, shut down.

pub(crate) mod acquire;
pub(crate) mod call_events;
pub(crate) mod driver;
pub(crate) mod events;
pub(crate) mod loss;
pub(crate) mod queue_check;
pub(crate) mod renew;
pub(crate) mod report;
pub(crate) mod shutdown;
