//! Faults of PostgreSQL servers, of poolers before them, and of the transactions of callers.

mod backends;
mod clocks;
mod dead_clients;
mod disk;
mod emptied;
mod frozen;
mod killed;
mod lost_update;
mod misconfigured;
mod network;
mod poolers;
mod rights;
mod standby;
mod support;
mod transactions;
