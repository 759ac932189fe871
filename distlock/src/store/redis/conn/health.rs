//! Whether the server can be used, as it is told to who watches the log: once when it is lost, once
//! when it is back.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::observer::event::{Event, Link};
use crate::protocol::trouble::Trouble;
use crate::store::{EventSink, Note, StoreEvent};
use crate::util::clock::{Clock, Moment};
use crate::util::mutex::lock;

/// A server that refuses some calls and serves others is told of no more often.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// What keeps the server from being used.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Cause {
    /// There is no connection for commands.
    NoCommands = 1,
    /// There is no connection for renewals.
    NoRenewals = 2,
    /// It answers, and refuses: no memory, no rights, no writes.
    Refusing = 4,
    /// There is no connection for what replicas are to acknowledge.
    NoAcks = 8,
}

#[derive(Debug, Default)]
struct Told {
    /// Since when it is lost.
    lost_at: Option<Moment>,
    /// When it was lost last.
    last: Option<Moment>,
    /// When a connection was replaced last without that.
    replaced: Option<Moment>,
}

/// What is wrong with one server.
pub(crate) struct Health {
    /// The causes that are at work.
    causes: AtomicU8,
    told: Mutex<Told>,
    address: Arc<str>,
    namespace: Arc<str>,
    clock: Arc<dyn Clock>,
    events: EventSink,
}

impl Health {
    pub(crate) fn new(
        address: String,
        namespace: &str,
        clock: Arc<dyn Clock>,
        events: EventSink,
    ) -> Self {
        Health {
            causes: AtomicU8::new(0),
            told: Mutex::default(),
            address: address.into(),
            namespace: namespace.into(),
            clock,
            events,
        }
    }

    pub(crate) fn suffers(&self, cause: Cause, trouble: &Trouble) {
        if self.causes.load(Ordering::Relaxed) & cause as u8 != 0 {
            return;
        }
        let now = self.clock.now();
        let mut told = lock(&self.told);
        let lately = told.last.is_some_and(|last| now < last + TELL_EVERY);
        if lately && told.lost_at.is_none() && matches!(cause, Cause::Refusing) {
            return;
        }
        self.causes.fetch_or(cause as u8, Ordering::Relaxed);
        if told.lost_at.is_none() {
            (told.lost_at, told.last) = (Some(now), Some(now));
            let trouble = trouble.clone().at(&self.address);
            self.publish(Event::StoreLost {
                address: self.address.clone(),
                detail: trouble.to_string().into(),
            });
        }
    }

    pub(crate) fn recovers(&self, cause: Cause) {
        // Nearly always there is nothing to recover from.
        if self.causes.load(Ordering::Relaxed) & cause as u8 == 0 {
            return;
        }
        let mut told = lock(&self.told);
        let before = self.causes.fetch_and(!(cause as u8), Ordering::Relaxed);
        if before == cause as u8
            && let Some(since) = told.lost_at.take()
        {
            self.publish(Event::StoreBack {
                address: self.address.clone(),
                gap: self.clock.now().since(since),
            });
        }
    }

    /// A connection is up, in the place of one that went away then.
    pub(crate) fn link_up(&self, link: Link, since: Option<Moment>) {
        let now = self.clock.now();
        let address = self.address.clone();
        let gap = since.map(|since| now.since(since));
        self.publish(Event::LinkUp { link, address, gap });
        let address = self.address.clone();
        let note = if let Some(gap) = gap {
            let mut told = lock(&self.told);
            let lately = told.replaced.is_some_and(|last| now < last + TELL_EVERY);
            if lately || told.lost_at.is_some() {
                return;
            }
            told.replaced = Some(now);
            Note::Reconnected { address, link, gap }
        } else if link == Link::Commands {
            let namespace = self.namespace.clone();
            Note::Connected { address, namespace }
        } else {
            return;
        };
        (self.events)(StoreEvent::Noted(note));
    }

    /// A connection went away. When that was.
    pub(crate) fn link_down(&self, link: Link) -> Moment {
        let address = self.address.clone();
        self.publish(Event::LinkDown { link, address });
        self.clock.now()
    }

    fn publish(&self, event: Event) {
        (self.events)(StoreEvent::Happened(event));
    }

    /// Nobody needs the server any more.
    pub(crate) fn ends(&self) {
        for cause in [
            Cause::NoCommands,
            Cause::NoRenewals,
            Cause::Refusing,
            Cause::NoAcks,
        ] {
            self.recovers(cause);
        }
    }
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health")
            .field("causes", &self.causes)
            .finish_non_exhaustive()
    }
}
