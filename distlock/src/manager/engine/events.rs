//! Handlers of the events that a store sends on its own.

use std::sync::{Arc, Weak};

use once_cell::sync::OnceCell;

use crate::config::options::Options;
use crate::manager::engine::core::Core;
use crate::manager::engine::executor::Executor;
use crate::manager::engine::renew;
use crate::manager::engine::report;
use crate::manager::telemetry::{data_loss, logging};
use crate::observer::event::Event;
use crate::observer::telemetry::{Delivery, Telemetry};
use crate::protocol::acquisition::Acquisition;
use crate::protocol::messages::{Grant, RevocationNotice};
use crate::protocol::request::Request;
use crate::store::{EventSink, StoreEvent};

/// The receiver of a store's events. Exists before the store, and does not keep the manager alive.
#[derive(Clone)]
pub(crate) struct EventReceiver {
    core: Arc<OnceCell<Weak<Core>>>,
    executor: Executor,
    telemetry: Arc<Telemetry>,
}

impl EventReceiver {
    pub(crate) fn new(executor: Executor, telemetry: Arc<Telemetry>) -> Self {
        EventReceiver {
            core: Arc::default(),
            executor,
            telemetry,
        }
    }

    /// Delivers events to the manager from now on.
    pub(crate) fn attach(&self, core: &Arc<Core>) {
        // Set only once.
        let _ = self.core.set(Arc::downgrade(core));
    }

    pub(crate) fn sink(&self) -> EventSink {
        let receiver = self.clone();
        Arc::new(move |event| receiver.handle(event))
    }

    fn core(&self) -> Option<Arc<Core>> {
        self.core.get().and_then(Weak::upgrade)
    }

    fn handle(&self, event: StoreEvent) {
        let core = self.core();
        match (event, core) {
            (StoreEvent::Observer(event), core) => {
                self.telemetry.emit(Delivery::Guaranteed, || event.clone());
                if matches!(
                    event,
                    Event::StoreUnavailable { .. } | Event::StoreAvailable { .. }
                ) {
                    (self.executor)
                        .spawn_blocking(move || logging::store_event(&event, core.as_ref()));
                }
            }
            (StoreEvent::Log(note), core) => {
                (self.executor).spawn_blocking(move || logging::store_note(&note, core.as_ref()));
            }
            (StoreEvent::Granted(grant), Some(core)) => on_granted(&core, grant),
            (StoreEvent::Revoked(revocation), Some(core)) => on_revoked(&core, &revocation),
            (StoreEvent::OtherPermits { owner, last }, Some(core)) => {
                if let Some(entry) = core.registry.find(owner) {
                    logging::other_permits(&core, &entry.request, last);
                }
            }
            (StoreEvent::Reconnected, Some(core)) => {
                core.clone().executor.spawn(on_reconnected(core));
            }
            (StoreEvent::Moved, Some(core)) => reacquire_all(&core),
            (StoreEvent::RenewalsReconnected, Some(core)) => renew::renew_all(&core),
            // No acquisition exists before the manager does, or after it.
            (_, None) => {}
        }
    }
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

/// Makes the driver renew all holds, and acquire again for all waiting calls.
async fn on_reconnected(core: Arc<Core>) {
    let repeat = async {
        renew::renew_all(&core);
        reacquire_all(&core);
    };
    // Sent before them, because an acquire writes the fence anew.
    futures_util::future::join(data_loss::check(&core), repeat).await;
}

fn reacquire_all(core: &Core) {
    for entry in core.registry.queued() {
        (core.registry).update(&entry, Acquisition::handle_missing);
    }
}
