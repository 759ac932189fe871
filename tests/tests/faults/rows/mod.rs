//! Faults that no other module of this binary produces, one concept per file. `tests/FAULTS.md`
//! names the tests of each row of the list of faults.

mod cloned;
mod dropped;
mod ending;
mod garbage;
mod herd;
mod logged;
mod not_ready;
mod outage_lines;
mod overload;
mod partitions;
mod permissions;
mod power_loss;
mod retries;
mod shifted;
mod suspended;
mod table;

use std::time::Duration;

use distlock_tests::{child_args, is_child};
use tokio::runtime::Runtime;

/// Returns the nanoseconds of the clock that all processes of this machine share and that decides
/// over leases.
fn boot_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

/// Returns the arguments of this process, if a test has started it.
fn child<const N: usize>() -> Option<[String; N]> {
    let args = is_child().then(child_args)?;
    let wrong = |args| panic!("wrong arguments: {args:?}");
    Some(args.try_into().unwrap_or_else(wrong))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}

fn millis(text: &str) -> Duration {
    Duration::from_millis(text.parse().expect("milliseconds"))
}
