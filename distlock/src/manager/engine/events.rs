//! What a store tells unasked, and whom it reaches.

use std::sync::{Arc, Weak};

use once_cell::sync::OnceCell;

use crate::manager::engine::core::Core;
use crate::manager::engine::executor::Executor;
use crate::manager::engine::hold::Hold;
use crate::manager::engine::release;
use crate::manager::engine::watch;
use crate::manager::telemetry::report;
use crate::manager::telemetry::report::AtStake;
use crate::observer::delivery::Delivery;
use crate::observer::event::{Event, Link};
use crate::protocol::words::{Grant, Owner, Revocation};
use crate::store::{EventSink, Gap, StoreEvent};

/// Where a store's events go. It is there before the store is, and does not keep the manager alive.
#[derive(Clone, Debug)]
pub(crate) struct Mailbox {
    core: Arc<OnceCell<Weak<Core>>>,
    executor: Executor,
    observed: Option<Arc<Delivery>>,
}

impl Mailbox {
    pub(crate) fn new(executor: Executor, observed: Option<Arc<Delivery>>) -> Self {
        Mailbox {
            core: Arc::default(),
            executor,
            observed,
        }
    }

    /// From now on events reach the manager.
    pub(crate) fn open(&self, core: &Arc<Core>) {
        // It is opened once.
        let _ = self.core.set(Arc::downgrade(core));
    }

    pub(crate) fn sink(&self) -> EventSink {
        let mailbox = self.clone();
        Arc::new(move |event| mailbox.receive(event))
    }

    fn core(&self) -> Option<Arc<Core>> {
        self.core.get().and_then(Weak::upgrade)
    }

    /// Tells those who observe, if anybody does.
    fn observe(&self, event: impl FnOnce() -> Event) {
        if let Some(observed) = &self.observed {
            observed.tell_always(event());
        }
    }

    fn receive(&self, event: StoreEvent) {
        match event {
            StoreEvent::Lost { address, trouble } => {
                self.observe(|| Event::StoreLost {
                    address: address.clone(),
                    detail: trouble.to_string().into(),
                });
                let core = self.core();
                self.executor.spawn_blocking(move || {
                    if report::shows_outages() {
                        report::store_lost(&address, &trouble, &at_stake(core.as_ref()));
                    }
                });
            }
            StoreEvent::NotAuthenticated(trouble) => {
                let core = self.core();
                self.executor.spawn_blocking(move || {
                    let address = core.as_ref().and_then(|core| core.address());
                    report::not_authenticated(address.unwrap_or_default(), &trouble);
                });
            }
            StoreEvent::Back { address, gap } => {
                self.observe(|| Event::StoreBack {
                    address: address.clone(),
                    gap,
                });
                self.executor
                    .spawn_blocking(move || report::store_back(&address, gap));
            }
            StoreEvent::LinkUp {
                link,
                address,
                namespace,
                gap,
            } => {
                if let Some(observed) = &self.observed {
                    observed.link_up(link, &address, gap.duration());
                }
                self.executor.spawn_blocking(move || match gap {
                    Gap::First if link == Link::Commands => report::connected(&address, &namespace),
                    Gap::Untold(gap) => report::reconnected(&address, link, gap),
                    Gap::First | Gap::Told(_) => {}
                });
            }
            StoreEvent::LinkDown { link, address } => {
                if let Some(observed) = &self.observed {
                    observed.link_down(link, &address);
                }
            }
            StoreEvent::ClockSeen { address, offset } => {
                if let Some(observed) = &self.observed {
                    observed.tell(Event::ClockOffset {
                        address,
                        seconds: offset as f64 / 1e6,
                    });
                }
            }
            StoreEvent::ClockJumped { address, by } => {
                self.executor
                    .spawn_blocking(move || report::clock_jumped(&address, by));
            }
            // Before the manager is there, nothing was asked.
            event => {
                if let Some(core) = self.core() {
                    act(core, event);
                }
            }
        }
    }
}

/// What a store's event changes for the claims of its manager.
fn act(core: Arc<Core>, event: StoreEvent) {
    match event {
        StoreEvent::Granted(grant) => granted(&core, grant),
        StoreEvent::Revoked(revocation) => revoked(&core, &revocation),
        StoreEvent::Unheard(owners) => unheard(&core, owners),
        StoreEvent::Reconnected => core.clone().executor.spawn_later(reconnected(core)),
        StoreEvent::Moved => ask_again(&core),
        StoreEvent::RenewalsReconnected => watch::renew_all(&core),
        StoreEvent::Lost { .. }
        | StoreEvent::NotAuthenticated(_)
        | StoreEvent::Back { .. }
        | StoreEvent::LinkUp { .. }
        | StoreEvent::LinkDown { .. }
        | StoreEvent::ClockSeen { .. }
        | StoreEvent::ClockJumped { .. } => {}
    }
}

/// What a manager has to lose.
fn at_stake(core: Option<&Arc<Core>>) -> AtStake {
    let Some(core) = core else {
        return AtStake {
            held: 0,
            waiting: 0,
            nearest: None,
        };
    };
    let (held, waiting) = core.claims.count();
    AtStake {
        held,
        waiting,
        nearest: Hold::nearest(core, core.claims.held().iter()),
    }
}

/// A grant of an id that nobody here knows any more, or not for this lock, is given back.
fn granted(core: &Arc<Core>, grant: Grant) {
    let entry = core.claims.find(grant.owner);
    match entry.filter(|entry| entry.request.key.same_lock(&grant.key)) {
        Some(entry) => {
            let now = core.clock.now();
            core.claims
                .with(&entry, |claim| claim.handle_grant(&grant, now));
            entry.changed.notify_one();
        }
        None => release::undo_unknown(core, grant.key, grant.owner, grant.lease),
    }
}

/// Its holder stops, and releases then.
fn revoked(core: &Arc<Core>, revocation: &Revocation) {
    for entry in core.claims.held() {
        if entry.request.key.same_lock(&revocation.key) {
            let now = core.clock.now();
            core.claims
                .with(&entry, |claim| claim.handle_revocation(revocation, now));
            release::tell_loss(core, &entry);
        }
    }
}

/// Callers whose runtime does not run: what they asked for, or gave back, is released here (R37).
fn unheard(core: &Arc<Core>, owners: Vec<Owner>) {
    for owner in owners {
        let now = core.clock.now();
        if let Some(entry) = core.claims.find(owner) {
            core.claims.with(&entry, |claim| claim.handle_hang(now));
            entry.changed.notify_one();
            release::submit_what_is_given_back(core, &entry);
        } else {
            release::take_over(core, owner);
        }
    }
}

/// What is held is renewed first, and then all that is waited for asked for again.
async fn reconnected(core: Arc<Core>) {
    watch::renew_all(&core);
    // Whoever renews runs before the waiters' asks are sent.
    tokio::task::yield_now().await;
    ask_again(&core);
}

fn ask_again(core: &Core) {
    for entry in core.claims.waiting() {
        core.claims.with(&entry, |claim| claim.handle_missing());
        entry.changed.notify_one();
    }
}
