//! One suite for every store: the promises of a lock, in memory and on real Redis servers.
//!
//! Faults of servers, networks and processes have a suite of their own, `tests/faults`.

// A test states its expectations by unwrapping them.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod fixture;

mod annotated;
mod bad_input;
mod bad_server;
mod bounds;
mod connecting;
mod dropped_acquires;
mod dropped_guards;
mod endings;
mod exclusion;
mod fencing;
mod foreign;
mod holding;
mod kinds;
mod loss;
mod metadata;
mod once;
#[cfg(distlock_inside)]
mod pair;
mod paused;
mod queues;
mod reentry;
mod runtimes;
mod rw_lock;
mod scripts;
mod semaphore;
mod several_keys;
mod shutdown;
mod siblings;
mod skips;
mod texts;
mod unlocking;
mod waiting;
