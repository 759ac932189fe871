//! A Redis Cluster.

pub(super) mod map;
pub(super) mod place;
pub(super) mod slots;
pub(super) mod subscribed;
pub(super) mod topology;
