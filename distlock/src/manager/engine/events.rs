//! Handlers of the events that a store sends on its own.

use std::sync::{Arc, Weak};

use once_cell::sync::OnceCell;

use crate::manager::engine::core::Core;
use crate::manager::engine::executor::Executor;
use crate::manager::engine::release;
use crate::manager::engine::watch;
use crate::manager::telemetry::report;
use crate::observer::event::Event;
use crate::observer::telemetry::{Delivery, Telemetry};
use crate::protocol::messages::{Grant, Owner, RevocationNotice};
use crate::store::{EventSink, StoreEvent};

/// The receiver of a store's events. Exists before the store, and does not keep the manager alive.
#[derive(Clone)]
pub(crate) struct Mailbox {
    core: Arc<OnceCell<Weak<Core>>>,
    executor: Executor,
    telemetry: Arc<Telemetry>,
}

impl Mailbox {
    pub(crate) fn new(executor: Executor, telemetry: Arc<Telemetry>) -> Self {
        Mailbox {
            core: Arc::default(),
            executor,
            telemetry,
        }
    }

    /// Delivers events to the manager from now on.
    pub(crate) fn open(&self, core: &Arc<Core>) {
        // Set only once.
        let _ = self.core.set(Arc::downgrade(core));
    }

    pub(crate) fn sink(&self) -> EventSink {
        let mailbox = self.clone();
        Arc::new(move |event| mailbox.receive(event))
    }

    fn core(&self) -> Option<Arc<Core>> {
        self.core.get().and_then(Weak::upgrade)
    }

    fn receive(&self, event: StoreEvent) {
        let core = self.core();
        match (event, core) {
            (StoreEvent::Observer(event), core) => {
                let delivery = match event {
                    Event::ClockOffset { .. } => Delivery::BestEffort,
                    _ => Delivery::Guaranteed,
                };
                self.telemetry.emit(delivery, || event.clone());
                if matches!(
                    event,
                    Event::StoreUnavailable { .. } | Event::StoreAvailable { .. }
                ) {
                    (self.executor).spawn_blocking(move || report::happened(&event, core.as_ref()));
                }
            }
            (StoreEvent::Log(note), core) => {
                (self.executor).spawn_blocking(move || report::note(&note, core.as_ref()));
            }
            (StoreEvent::Granted(grant), Some(core)) => granted(&core, grant),
            (StoreEvent::Revoked(revocation), Some(core)) => revoked(&core, &revocation),
            (StoreEvent::Stalled(owners), Some(core)) => unheard(&core, owners),
            (StoreEvent::Reconnected, Some(core)) => {
                core.clone().executor.spawn_later(reconnected(core));
            }
            (StoreEvent::Moved, Some(core)) => ask_again(&core),
            (StoreEvent::RenewalsReconnected, Some(core)) => watch::renew_all(&core),
            // No acquisition exists before the manager does, or after it.
            (_, None) => {}
        }
    }
}

/// Applies a grant to its acquisition. Gives it back if no acquisition here has that id for that
/// lock.
fn granted(core: &Arc<Core>, grant: Grant) {
    let entry = core.claims.find(grant.owner);
    match entry.filter(|entry| entry.request.key.same_lock(&grant.key)) {
        Some(entry) => {
            let now = core.clock.now();
            core.claims
                .with(&entry, |acquisition| acquisition.handle_grant(&grant, now));
            entry.changed.notify_one();
        }
        None => release::undo_unknown(core, grant.key, grant.owner, grant.lease),
    }
}

/// Ends the revoked hold. Its holder stops, and then releases.
fn revoked(core: &Arc<Core>, revocation: &RevocationNotice) {
    for entry in core.claims.held() {
        if entry.request.key.same_lock(&revocation.key) {
            let now = core.clock.now();
            core.claims.with(&entry, |acquisition| {
                acquisition.handle_revocation(revocation, now)
            });
            release::tell_loss(core, &entry);
        }
    }
}

/// Releases here what callers requested or gave back, because their runtimes do not run (R37).
fn unheard(core: &Arc<Core>, owners: Vec<Owner>) {
    for owner in owners {
        let now = core.clock.now();
        if let Some(entry) = core.claims.find(owner) {
            core.claims
                .with(&entry, |acquisition| acquisition.handle_hang(now));
            entry.changed.notify_one();
            release::submit_what_is_given_back(core, &entry);
        } else {
            release::take_over(core, owner);
        }
    }
}

/// Renews all holds first. Then all waiting calls acquire again.
async fn reconnected(core: Arc<Core>) {
    watch::renew_all(&core);
    // Lets the watchdog run before the acquire commands are sent.
    tokio::task::yield_now().await;
    ask_again(&core);
}

fn ask_again(core: &Core) {
    for entry in core.claims.waiting() {
        core.claims
            .with(&entry, |acquisition| acquisition.handle_missing());
        entry.changed.notify_one();
    }
}
