//! The servers on which each template is locked. If a service installs a manager and passes another
//! one to one of its calls, it has two locks with one name. These do not exclude each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::manager::LockManager;
use crate::manager::telemetry::report;

/// The servers of each template.
static SEEN: Mutex<BTreeMap<&'static str, Seen>> = Mutex::new(BTreeMap::new());

/// True once any function has used another server than the installed one. Few processes do that,
/// and the others have nothing to record.
static ANY_OTHER: AtomicBool = AtomicBool::new(false);

#[derive(Default)]
struct Seen {
    at_installed: bool,
    other: Option<Arc<str>>,
    is_logged: bool,
}

/// Records that an annotated function locks with the manager `used` while `installed` is installed.
/// Logs each template once, when it has been locked on two servers.
pub(crate) fn note(template: &'static str, used: &LockManager, installed: &LockManager) {
    let (Some(used), Some(installed)) = (used.address(), installed.address()) else {
        // A store without an address is in this process, and for tests.
        return;
    };
    let is_other = used != installed;
    if is_other {
        ANY_OTHER.store(true, Ordering::Relaxed);
    } else if !ANY_OTHER.load(Ordering::Relaxed) {
        return;
    }
    // Another thread is recording, so a later call records this use.
    let Ok(mut all) = SEEN.try_lock() else {
        return;
    };
    let seen = all.entry(template).or_default();
    if is_other {
        seen.other.get_or_insert_with(|| used.into());
    } else {
        seen.at_installed = true;
    }
    let state = (seen.at_installed, seen.is_logged, seen.other.clone());
    let (true, false, Some(other)) = state else {
        return;
    };
    seen.is_logged = true;
    drop(all);
    report::two_servers(template, installed, &other);
}
