//! The servers on which each template is locked. If a service installs a manager and passes another
//! one to one of its calls, it has two locks with one name. These do not exclude each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::manager::LockManager;
use crate::manager::telemetry::logging;

/// The servers of each template.
static TEMPLATES: Mutex<BTreeMap<&'static str, TemplateServers>> = Mutex::new(BTreeMap::new());

/// True once any function has used another server than the installed one. Few processes do that,
/// and the others have nothing to record.
static OTHER_SERVER_USED: AtomicBool = AtomicBool::new(false);

#[derive(Default)]
struct TemplateServers {
    at_installed: bool,
    other: Option<Arc<str>>,
    is_logged: bool,
}

/// Records that an annotated function locks with the manager `used` while `installed` is installed.
/// Logs each template once, when it has been locked on two servers.
pub(crate) fn record(template: &'static str, used: &LockManager, installed: &LockManager) {
    let (Some(used), Some(installed)) = (used.address(), installed.address()) else {
        // A store without an address is in this process, and for tests.
        return;
    };
    let is_other = used != installed;
    if is_other {
        OTHER_SERVER_USED.store(true, Ordering::Relaxed);
    } else if !OTHER_SERVER_USED.load(Ordering::Relaxed) {
        return;
    }
    // Another thread is recording, so a later call records this use.
    let Ok(mut templates) = TEMPLATES.try_lock() else {
        return;
    };
    let servers = templates.entry(template).or_default();
    if is_other {
        servers.other.get_or_insert_with(|| used.into());
    } else {
        servers.at_installed = true;
    }
    let state = (
        servers.at_installed,
        servers.is_logged,
        servers.other.clone(),
    );
    let (true, false, Some(other)) = state else {
        return;
    };
    // It was installed after the first one was shut down.
    if *other == *installed {
        return;
    }
    servers.is_logged = true;
    drop(templates);
    logging::template_on_two_servers(template, installed, &other);
}
