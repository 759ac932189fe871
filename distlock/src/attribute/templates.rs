//! Which servers a template is locked on. A service that installs a manager and gives one of its
//! calls another manager has two locks of one name, which exclude nobody from each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::manager::LockManager;
use crate::manager::telemetry::report;

/// By template.
static SEEN: Mutex<BTreeMap<&'static str, Seen>> = Mutex::new(BTreeMap::new());

/// Whether any function ever used another server than the installed one. Few processes do, and the
/// others have nothing to note.
static ANY_OTHER: AtomicBool = AtomicBool::new(false);

#[derive(Default)]
struct Seen {
    at_installed: bool,
    other: Option<Arc<str>>,
    is_logged: bool,
}

/// Notes that an annotated function locks with this manager, while that one is installed. Logged
/// once for each template, when it was locked on two servers.
pub(crate) fn note(template: &'static str, used: &LockManager, installed: &LockManager) {
    let (Some(used), Some(installed)) = (used.address(), installed.address()) else {
        // A store inside this process is for tests.
        return;
    };
    let is_other = used != installed;
    if is_other {
        ANY_OTHER.store(true, Ordering::Relaxed);
    } else if !ANY_OTHER.load(Ordering::Relaxed) {
        return;
    }
    // Another thread notes something: this is noted another time.
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
