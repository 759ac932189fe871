//! The availability of a server, as the log shows it: one event when the server is lost, and one
//! when it is back.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::observer::event::{Connection, Event};
use crate::protocol::trouble::Trouble;
use crate::store::{EventSink, Note, StoreEvent};
use crate::util::clock::{Clock, Moment};
use crate::util::mutex::lock;

/// Minimum interval between reported outages of a server that refuses some calls and serves others,
/// and between logged reconnects.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// A reason why the server cannot be used.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause {
    /// There is no connection of this kind.
    No(Connection),
    /// The server replies, and refuses: no memory, no rights, no writes.
    Refusing,
}

impl Cause {
    fn bit(self) -> u8 {
        match self {
            Cause::No(connection) => 1 << connection as u8,
            Cause::Refusing => 1 << 7,
        }
    }
}

#[derive(Debug, Default)]
struct Told {
    /// Since when the server is lost.
    lost_at: Option<Moment>,
    /// When the last outage began.
    last: Option<Moment>,
    /// When the last reconnect without an outage was logged.
    replaced: Option<Moment>,
}

/// The causes that keep one server from being used.
pub(crate) struct Health {
    /// Bits of the current causes.
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
        if self.causes.load(Ordering::Relaxed) & cause.bit() != 0 {
            return;
        }
        let now = self.clock.now();
        let mut told = lock(&self.told);
        let lately = told.last.is_some_and(|last| now < last + TELL_EVERY);
        if lately && told.lost_at.is_none() && matches!(cause, Cause::Refusing) {
            return;
        }
        self.causes.fetch_or(cause.bit(), Ordering::Relaxed);
        if told.lost_at.is_none() {
            (told.lost_at, told.last) = (Some(now), Some(now));
            let trouble = trouble.clone().at(&self.address);
            self.publish(Event::StoreUnavailable {
                address: self.address.clone(),
                detail: trouble.to_string().into(),
            });
        }
    }

    pub(crate) fn recovers(&self, cause: Cause) {
        self.clear(cause.bit());
    }

    fn clear(&self, causes: u8) {
        // Nearly always there is nothing to clear.
        if self.causes.load(Ordering::Relaxed) & causes == 0 {
            return;
        }
        let mut told = lock(&self.told);
        let before = self.causes.fetch_and(!causes, Ordering::Relaxed);
        if before & !causes == 0
            && let Some(since) = told.lost_at.take()
        {
            self.publish(Event::StoreAvailable {
                address: self.address.clone(),
                downtime: self.clock.now().since(since),
            });
        }
    }

    /// Publishes that a connection is up. `since` is when its predecessor was lost, if it had one.
    pub(crate) fn connection_up(&self, connection: Connection, since: Option<Moment>) {
        let now = self.clock.now();
        let address = self.address.clone();
        let downtime = since.map(|since| now.since(since));
        self.publish(Event::ConnectionUp {
            connection,
            address,
            downtime,
        });
        if let Some(note) = self.note_of(connection, downtime, now) {
            (self.events)(StoreEvent::Noted(note));
        }
        self.recovers(Cause::No(connection));
    }

    /// Returns the log entry for a connection that is up. Returns `None` if an outage was logged,
    /// or if another reconnect was logged a moment ago.
    fn note_of(
        &self,
        connection: Connection,
        downtime: Option<Duration>,
        now: Moment,
    ) -> Option<Note> {
        let address = self.address.clone();
        let Some(downtime) = downtime else {
            let namespace = self.namespace.clone();
            return (connection == Connection::Commands)
                .then_some(Note::Connected { address, namespace });
        };
        let mut told = lock(&self.told);
        let lately = told.replaced.is_some_and(|last| now < last + TELL_EVERY);
        if lately || told.lost_at.is_some() {
            return None;
        }
        told.replaced = Some(now);
        Some(Note::Reconnected {
            address,
            connection,
            downtime,
        })
    }

    /// Publishes that a connection was lost, and returns the current time.
    pub(crate) fn connection_down(&self, connection: Connection) -> Moment {
        let address = self.address.clone();
        self.publish(Event::ConnectionDown {
            connection,
            address,
        });
        self.clock.now()
    }

    fn publish(&self, event: Event) {
        (self.events)(StoreEvent::Happened(event));
    }

    /// Clears all causes, because the server is no longer needed.
    pub(crate) fn ends(&self) {
        self.clear(u8::MAX);
    }
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health")
            .field("causes", &self.causes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::clock::BootClock;

    #[test]
    fn a_server_is_back_when_no_cause_is_left() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = told.clone();
        let events: EventSink = Arc::new(move |event| {
            lock(&tell).push(matches!(
                event,
                StoreEvent::Happened(Event::StoreUnavailable { .. })
            ));
        });
        let health = Health::new("a:1".into(), "d", Arc::new(BootClock), events);
        let trouble = Trouble::timed_out(TELL_EVERY);
        for cause in [
            Connection::Commands,
            Connection::Renewals,
            Connection::Commands,
        ]
        .map(Cause::No)
        {
            health.suffers(cause, &trouble);
        }
        health.recovers(Cause::No(Connection::Commands));
        assert_eq!(*lock(&told), [true]);
        health.recovers(Cause::No(Connection::Renewals));
        assert_eq!(*lock(&told), [true, false]);
    }
}
