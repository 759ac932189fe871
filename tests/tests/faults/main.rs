//! distlock under faults, against real servers: what is promised while processes freeze and die,
//! connections break, commands arrive late, and the server refuses, forgets or lies about the time.

// A test says what it expects by unwrapping it.
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
mod forgetting;
mod kit;
mod lanes;
mod late;
mod loss;
mod misconfigured;
mod moved;
mod outages;
mod paused;
mod protocol;
mod proxies;
mod quorum;
mod reconnect;
mod refusing;
mod replicas;
mod rows;
mod sentinel;
mod stampede;
mod tls;
