//! One connection that is kept open: its handshake, its liveness checks, and its replacement.

pub(crate) mod client;
pub(crate) mod handshake;
pub(crate) mod hooks;
pub(crate) mod pushes;
pub(crate) mod reached_servers;
pub(crate) mod reconnecting_connection;
pub(crate) mod session;
