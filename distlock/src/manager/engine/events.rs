//! Handlers of the events that a store sends on its own.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::config::options::Options;
use crate::manager::core::Core;
use crate::manager::core::executor::Executor;
use crate::manager::engine::renew;
use crate::manager::engine::report;
use crate::manager::telemetry::data_loss;
use crate::manager::telemetry::logging::{self, TARGET};
use crate::observer::event::Event;
use crate::observer::telemetry::{Delivery, Telemetry};
use crate::protocol::acquisition::Acquisition;
use crate::protocol::messages::Inspect;
use crate::protocol::messages::{Grant, RevocationNotice};
use crate::protocol::request::Request;
use crate::store::{EventSink, ReportSink, StoreEvent, StoreReport};

/// Timeout of the query for lost data.
const CHECK_DATA_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the receiver of a store's events. It does not keep the manager alive, and no acquisition
/// exists before the manager does, or after it.
pub(crate) fn event_sink(core: Weak<Core>) -> EventSink {
    Arc::new(move |event| {
        if let Some(core) = core.upgrade() {
            on_event(&core, event);
        }
    })
}

fn on_event(core: &Arc<Core>, event: StoreEvent) {
    match event {
        StoreEvent::Granted(grant) => on_granted(core, grant),
        StoreEvent::Revoked(revocation) => on_revoked(core, &revocation),
        StoreEvent::RenewNow => renew::renew_all(core),
        StoreEvent::Reacquire => core.executor.spawn(reacquire(core.clone())),
        StoreEvent::OtherPermits { owner, last } => {
            if let Some(entry) = core.registry.find(owner) {
                logging::other_permits(core, &entry.request, last);
            }
        }
    }
}

/// Returns the receiver of a store's reports, some of which come before the manager exists.
pub(crate) fn report_sink(
    core: Weak<Core>,
    executor: Executor,
    telemetry: Arc<Telemetry>,
) -> ReportSink {
    Arc::new(move |report| match report {
        StoreReport::Event(event) => {
            telemetry.emit(Delivery::Guaranteed, || event.clone());
            if matches!(
                event,
                Event::StoreUnavailable { .. } | Event::StoreAvailable { .. }
            ) {
                let core = core.upgrade();
                executor.spawn_blocking(move || logging::store_event(&event, core.as_ref()));
            }
        }
        StoreReport::Note(note) => executor.spawn_blocking(move || logging::store_note(&note)),
    })
}

/// Applies a grant to its acquisition. Releases it if no acquisition here has that owner id and
/// lock.
fn on_granted(core: &Arc<Core>, grant: Grant) {
    let entry = core.registry.find(grant.owner);
    match entry.filter(|entry| entry.request.key.same_lock(&grant.key)) {
        Some(entry) => {
            core.update(&entry, |acquisition, now| {
                acquisition.handle_grant(&grant, now)
            });
        }
        None => {
            let options = Options {
                lease: Some(grant.lease),
                ..Options::default()
            };
            let now = core.clock.now();
            let request = Arc::new(Request::new(grant.key, grant.kind, options, now));
            let acquisition = Acquisition::release_only(request, now);
            core.registry.register(grant.owner, acquisition);
        }
    }
}

/// Ends the revoked hold. Its holder stops, and then releases.
fn on_revoked(core: &Arc<Core>, revocation: &RevocationNotice) {
    for entry in core.registry.held() {
        if entry.request.key.same_lock(&revocation.key) {
            core.update(&entry, |acquisition, now| {
                acquisition.handle_revocation(revocation, now)
            });
            report::publish(core, &entry);
        }
    }
}

/// Makes the driver acquire again for all waiting calls.
async fn reacquire(core: Arc<Core>) {
    let reacquire = async { reacquire_now(&core) };
    // Sent before the acquires, because these write the fence anew.
    futures_util::future::join(check_data(&core), reacquire).await;
}

/// Checks whether the store has the last fence that this client knows.
async fn check_data(core: &Core) {
    let is_logged = tracing::enabled!(target: TARGET, tracing::Level::WARN);
    let Some(acquired) = core.known_data.last_acquired().filter(|_| is_logged) else {
        return;
    };
    let inspect = Inspect {
        key: &acquired.0,
        max_listed: 0,
    };
    if let Ok(found) = core.store.inspect(&inspect, CHECK_DATA_TIMEOUT).await {
        data_loss::examine(core, &acquired, &found);
    }
}

pub(crate) fn reacquire_now(core: &Core) {
    for entry in core.registry.queued() {
        core.registry.update(&entry, Acquisition::handle_missing);
    }
}
