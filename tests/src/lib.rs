//! Support for the tests of distlock, which show a lock under real faults.
//!
//! * [`RedisServer`]: a real redis-server process of its own, on a free port, ended by pid;
//! * [`sentinel::Sentinels`]: a primary, a replica, and the sentinels that monitor them;
//! * [`RedisCluster`]: primaries with a replica each; slots can move and nodes can die;
//! * [`Authority`]: a certificate authority;
//! * [`Resp`] and [`Monitor`]: a client that shares no code with the one under test;
//! * [`fill_queue`]: long queues without clients;
//! * [`Middleman`]: a third-party proxy, which forwards no pub/sub messages;
//! * [`Proxy`]: a TCP proxy in front of a server, with faults that are scripted while it runs;
//! * [`garbage`]: a server that sends replies that no server should send;
//! * [`Worker`]: a child process that can be frozen and killed; [`preloadable`] code changes its
//!   libc;
//! * [`documents`] and [`Commands`]: run the commands in this repository's documents unchanged;
//! * [`eventually`], [`eventually_async`], [`within`]: wait for conditions, never for fixed times;
//! * [`SplitMix`]: reproducible random numbers;
//! * [`Spread`]: minimum, mean, percentiles, maximum.
//!
//! Everything here panics with a message about the cause, because only tests use it.

mod authority;
mod child;
mod client;
mod cluster;
mod commands;
pub mod documents;
#[cfg(doctest)]
mod examples;
pub mod garbage;
mod middleman;
mod monitor;
mod ports;
mod postgres;
mod process;
pub mod proxy;
mod queue;
mod quorum;
pub mod resp;
pub mod sentinel;
mod server;
mod shim;
mod skew;
mod split_mix;
mod spread;
mod wait;

pub use authority::{Authority, CertificateFiles};
pub use client::{Reply, Resp};
pub use cluster::RedisCluster;
pub use commands::{CommandOutput, Commands};
pub use middleman::Middleman;
pub use monitor::Monitor;
pub use postgres::{PgBouncer, PostgresServer, PostgresServerBuilder};
pub use process::{Worker, child_args, is_child, this_test_binary};
pub use proxy::{After, Directions, Proxy, ProxyHandle, ProxyStats};
pub use queue::fill_queue;
pub use quorum::RedisQuorum;
pub use server::{RedisServer, RedisServerBuilder};
pub use shim::preloadable;
pub use split_mix::SplitMix;
pub use spread::Spread;
pub use wait::{Condition, equal, eventually, eventually_async, ms, within};
