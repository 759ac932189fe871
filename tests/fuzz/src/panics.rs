//! Counts panics of every thread.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static PANICS: AtomicU64 = AtomicU64::new(0);

/// How many there were, counted from the first call on.
pub(crate) fn count() -> u64 {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::AcqRel);
            usual(info);
        }));
    });
    PANICS.load(Ordering::Acquire)
}
