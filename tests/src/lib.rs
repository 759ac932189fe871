//! Support for the tests of distlock: everything that is needed to show a lock under real faults.
//!
//! * [`RedisServer`]: a real redis-server process of its own, on a free port, ended by pid;
//! * [`sentinel::Sentinels`]: a master, a replica, and those who watch them;
//! * [`RedisCluster`]: masters with a replica each, whose slots move and whose nodes die;
//! * [`Authority`]: who signs certificates;
//! * [`Resp`] and [`Monitor`]: a client that shares no code with the one under test;
//! * [`Middleman`]: a proxy of those that people use, which passes on no messages;
//! * [`Proxy`]: a TCP proxy before a server, whose faults are scripted while it runs;
//! * [`garbage`]: a server that answers with what no server should answer;
//! * [`Worker`]: a child process that can be frozen and killed; [`preloadable`] C code changes its libc;
//! * [`documents`] and [`Commands`]: what the documents of this repository tell readers to type, run as it stands there;
//! * [`eventually`], [`eventually_async`], [`within`]: wait for conditions, never for time;
//! * [`SplitMix`]: chance that can be repeated;
//! * [`Spread`]: minimum, mean, percentiles, maximum.
//!
//! Everything here panics with a message that says what went wrong: it is only used by tests.

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
mod process;
pub mod proxy;
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
pub use commands::{Commands, Said};
pub use middleman::Middleman;
pub use monitor::Monitor;
pub use process::{Worker, child_args, is_child, this_test_binary};
pub use proxy::{After, Proxy, ProxyHandle, ProxyStats, Way};
pub use quorum::RedisQuorum;
pub use server::{RedisServer, RedisServerBuilder};
pub use shim::preloadable;
pub use split_mix::SplitMix;
pub use spread::Spread;
pub use wait::{Condition, equal, eventually, eventually_async, within};
