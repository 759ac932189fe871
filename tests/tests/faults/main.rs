//! Fault tests against real servers: processes freeze and die, connections break, commands arrive
//! late, and the server refuses, loses data or reports the wrong time.

// A test states its expectation by unwrapping the result.
#![allow(clippy::unwrap_used)]

mod a_minute;
mod access;
mod child;
mod clocks;
mod cluster;
mod confirming;
mod contended;
mod credentials;
mod dead_clients;
mod dialing;
mod every_await;
mod forgetting;
mod forked;
mod late;
mod loss;
mod misconfigured;
mod moved;
mod outages;
mod paused;
mod postgres;
mod protocol;
mod proxies;
mod quorum;
mod reconnect;
mod records;
mod refusing;
mod replicas;
mod rows;
mod runtime_connections;
mod sentinel;
mod stampede;
mod support;
mod tls;
