//! Ports for the servers that tests start.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

const FIRST: u16 = 10_000;
/// How many ports there are. The buses of cluster nodes have as many more.
const COUNT: u16 = 10_000;

/// Returns a port that is free, as is the port of its cluster bus.
///
/// Both are below the usual ephemeral ports, and this process gets neither a second time soon.
/// So no other server and no connection has taken them when a killed server returns.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run at the same time begin at different ports.
    let spread = std::process::id().wrapping_mul(0x9e37_79b1) % u32::from(COUNT);
    let first = u16::try_from(spread).expect("below COUNT");
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    for _ in 0..COUNT {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + (first + next) % COUNT;
        if is_free(port) && is_free(port + COUNT) {
            return port;
        }
    }
    panic!("none of {COUNT} ports of 127.0.0.1 is free");
}
