//! A clock that can be set ahead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::util::clock::{BootClock, BootInstant, Clock};

/// The machine's clock, set ahead by this many milliseconds.
#[derive(Debug)]
pub(super) struct Ahead(pub(super) Arc<AtomicU64>);

impl Clock for Ahead {
    fn now(&self) -> BootInstant {
        BootClock.now() + Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn wall_micros(&self) -> u64 {
        BootClock.wall_micros()
    }
}
