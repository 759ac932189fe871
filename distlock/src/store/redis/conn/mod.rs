//! One connection that is kept open: its handshake, its liveness checks, and its replacement.

pub(crate) mod client;
pub(crate) mod connection_registry;
pub(crate) mod handshake;
pub(crate) mod health;
pub(crate) mod hooks;
pub(crate) mod reconnecting_connection;
pub(crate) mod server_time;
pub(crate) mod session;
