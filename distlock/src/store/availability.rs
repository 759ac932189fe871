//! The availability of a server, as the log shows it: one event when the server is lost, and one
//! when it is back.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::observer::event::{Connection, Event};
use crate::protocol::store_error::StoreError;
use crate::store::connecting::StoreState;
use crate::store::{Note, ReportSink, StoreReport};
use crate::util::clock::{BootInstant, Clock};
use crate::util::sync::lock;

/// Minimum interval between reported outages of a server that refuses some calls and serves others,
/// and between logged reconnects.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A reason why the server cannot be used.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OutageCause {
    /// There is no connection of this kind.
    Disconnected(Connection),
    /// The server replies, and refuses: no memory, no permissions, no writes.
    Rejecting,
}

impl OutageCause {
    fn bit(self) -> u8 {
        match self {
            OutageCause::Disconnected(connection) => 1 << connection as u8,
            OutageCause::Rejecting => 1 << 7,
        }
    }
}

/// The loss of a connection that is replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLoss {
    pub(crate) since: BootInstant,
    /// True if no call or renewal can have noticed.
    pub(crate) is_harmless: bool,
}

#[derive(Debug, Default)]
struct ReportTimes {
    /// When the server was lost; `None` while it is not lost.
    unavailable_since: Option<BootInstant>,
    /// When the last outage began.
    last_outage: Option<BootInstant>,
    /// When the last reconnect without an outage was logged.
    last_reconnect: Option<BootInstant>,
}

/// The causes that keep one server from being used.
pub(crate) struct Availability {
    /// Bits of the current causes.
    causes: AtomicU8,
    reports: Mutex<ReportTimes>,
    address: Arc<str>,
    namespace: Arc<str>,
    clock: Arc<dyn Clock>,
    reports_to: ReportSink,
    state: Arc<StoreState>,
}

impl Availability {
    pub(crate) fn new(
        address: &str,
        namespace: &str,
        clock: Arc<dyn Clock>,
        reports_to: ReportSink,
        state: Arc<StoreState>,
    ) -> Self {
        Availability {
            causes: AtomicU8::new(0),
            reports: Mutex::default(),
            address: address.into(),
            namespace: namespace.into(),
            clock,
            reports_to,
            state,
        }
    }

    pub(crate) fn report(&self, cause: OutageCause, error: &StoreError) {
        let is_known = self.causes.load(Ordering::Relaxed) & cause.bit() != 0;
        if is_known || self.state.is_connecting.load(Ordering::Relaxed) {
            return;
        }
        let now = self.clock.now();
        let mut reports = lock(&self.reports);
        let is_recent = reports
            .last_outage
            .is_some_and(|last| now < last + REPORT_INTERVAL);
        if is_recent
            && reports.unavailable_since.is_none()
            && matches!(cause, OutageCause::Rejecting)
        {
            return;
        }
        self.causes.fetch_or(cause.bit(), Ordering::Relaxed);
        if reports.unavailable_since.is_none() {
            (reports.unavailable_since, reports.last_outage) = (Some(now), Some(now));
            let error = error.clone().at(&self.address);
            self.publish(Event::StoreUnavailable {
                address: self.address.clone(),
                detail: error.text_with_remedy().into(),
            });
        }
    }

    pub(crate) fn clear(&self, cause: OutageCause) {
        self.clear_bits(cause.bit());
    }

    fn clear_bits(&self, causes: u8) {
        // Nearly always there is nothing to clear.
        if self.causes.load(Ordering::Relaxed) & causes == 0 {
            return;
        }
        let mut reports = lock(&self.reports);
        let previous = self.causes.fetch_and(!causes, Ordering::Relaxed);
        if previous & !causes == 0
            && let Some(since) = reports.unavailable_since.take()
        {
            self.publish(Event::StoreAvailable {
                address: self.address.clone(),
                downtime: self.clock.now().since(since),
            });
        }
    }

    /// Publishes that a connection is up, and ends the loss of its predecessor, if it had one.
    pub(crate) fn connection_up(&self, connection: Connection, loss: Option<ConnectionLoss>) {
        let now = self.clock.now();
        let address = self.address.clone();
        let downtime = loss.map(|loss| now.since(loss.since));
        self.publish(Event::ConnectionUp {
            connection,
            address,
            downtime,
        });
        if !loss.is_some_and(|loss| loss.is_harmless)
            && let Some(note) = self.note(connection, downtime, now)
        {
            (self.reports_to)(StoreReport::Note(note));
        }
        self.clear(OutageCause::Disconnected(connection));
    }

    /// Returns the log entry for a connection that is up. Returns `None` if an outage was logged,
    /// or if another reconnect was logged a moment ago.
    fn note(
        &self,
        connection: Connection,
        downtime: Option<Duration>,
        now: BootInstant,
    ) -> Option<Note> {
        let address = self.address.clone();
        let Some(downtime) = downtime else {
            let namespace = self.namespace.clone();
            return (connection == Connection::Commands)
                .then_some(Note::Connected { address, namespace });
        };
        let mut reports = lock(&self.reports);
        let is_recent = reports
            .last_reconnect
            .is_some_and(|last| now < last + REPORT_INTERVAL);
        if is_recent || reports.unavailable_since.is_some() {
            return None;
        }
        reports.last_reconnect = Some(now);
        Some(Note::Reconnected {
            address,
            connection,
            downtime,
        })
    }

    /// Publishes that a connection was lost, and returns the current time.
    pub(crate) fn connection_down(&self, connection: Connection) -> BootInstant {
        let address = self.address.clone();
        self.publish(Event::ConnectionDown {
            connection,
            address,
        });
        self.clock.now()
    }

    fn publish(&self, event: Event) {
        (self.reports_to)(StoreReport::Event(event));
    }

    /// Clears all causes, because the server is no longer needed.
    pub(crate) fn clear_all(&self) {
        self.clear_bits(u8::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ReportSink;
    use crate::util::clock::BootClock;

    #[test]
    fn a_server_is_back_when_no_cause_is_left() {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let sink = reports.clone();
        let record: ReportSink = Arc::new(move |report| {
            let is_outage = matches!(report, StoreReport::Event(Event::StoreUnavailable { .. }));
            lock(&sink).push(is_outage);
        });
        let clock = Arc::new(BootClock);
        let availability = Availability::new("redis://a:1", "d", clock, record, Arc::default());
        let error = StoreError::timed_out(REPORT_INTERVAL);
        let [commands, renewals] =
            [Connection::Commands, Connection::Renewals].map(OutageCause::Disconnected);
        for cause in [OutageCause::Rejecting, commands, renewals, commands] {
            availability.report(cause, &error);
        }
        availability.clear(commands);
        availability.clear(OutageCause::Rejecting);
        assert_eq!(*lock(&reports), [true]);
        availability.clear(renewals);
        assert_eq!(*lock(&reports), [true, false]);
        // Rejected calls are not reported again so soon. A lost connection is.
        availability.report(OutageCause::Rejecting, &error);
        assert_eq!(*lock(&reports), [true, false]);
        availability.report(commands, &error);
        availability.clear_all();
        assert_eq!(*lock(&reports), [true, false, true, false]);
    }
}
