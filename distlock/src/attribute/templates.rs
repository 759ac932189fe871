//! Which servers a template is locked on. A service that installs a manager and gives one of its
//! calls another manager has two locks of one name, which exclude nobody from each other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use once_cell::sync::Lazy;

use crate::manager::LockManager;
use crate::manager::telemetry::report;

/// By template.
static SEEN: Lazy<Mutex<HashMap<&'static str, Seen>>> = Lazy::new(Mutex::default);

/// Whether any function ever used another server than the installed one. Few processes do, and the
/// others have nothing to note.
static ANY_OTHER: AtomicBool = AtomicBool::new(false);

#[derive(Debug, Default)]
struct Seen {
    installed: Option<Arc<str>>,
    other: Option<Arc<str>>,
    told: bool,
}

/// Notes that an annotated function locks with this manager, while that one is installed. Told once
/// for each template, when it was locked on two servers.
pub(crate) fn note(template: &'static str, used: &LockManager, installed: &LockManager) {
    let (Some(used), Some(installed)) = (used.address(), installed.address()) else {
        // A store inside this process is for tests.
        return;
    };
    if used == installed {
        if !ANY_OTHER.load(Ordering::Relaxed) {
            return;
        }
    } else {
        ANY_OTHER.store(true, Ordering::Relaxed);
    }
    let told = {
        // Another thread notes something: this is noted another time.
        let Ok(mut seen) = SEEN.try_lock() else {
            return;
        };
        let seen = seen.entry(template).or_default();
        let place = if used == installed {
            &mut seen.installed
        } else {
            &mut seen.other
        };
        if place.is_none() {
            *place = Some(used.into());
        }
        match (&seen.installed, &seen.other) {
            (Some(installed), Some(other)) if !seen.told => {
                let told = (installed.clone(), other.clone());
                seen.told = true;
                Some(told)
            }
            _ => None,
        }
    };
    if let Some((installed, other)) = told {
        report::two_servers(template, &installed, &other);
    }
}
