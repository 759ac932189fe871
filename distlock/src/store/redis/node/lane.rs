//! Runtime connections: connections on the callers' runtimes, which save the hop to the I/O thread.
//! A call on one needs no timer, because the I/O thread checks the commands in flight and notifies
//! the callers of late ones.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell};

use crate::protocol::trouble::Trouble;
use crate::protocol::words::Owner;
use crate::store::redis::conn::handshake;
use crate::store::redis::conn::session::{ClientAddr, Predecessor, Session};
use crate::util::clock::Moment;
use crate::util::mutex::lock;

/// Upper limit of commands in flight on one runtime connection; others use the I/O thread.
const MOST: usize = 1_024;

/// Age of an unanswered command at which its connection accepts no more commands.
const LONGEST_DEBT: Duration = Duration::from_millis(100);

/// Lower limit of the time that the caller of a late command has to leave.
const LEAST_PATIENCE: Duration = Duration::from_millis(50);

/// A connection on a caller's runtime.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) session: Session,
    pub(crate) name: Arc<LaneName>,
    /// Epoch of the command connection that receives the pushes for its acquires.
    listener: u64,
    flights: Mutex<Flights>,
    keeper: Arc<Keeper>,
}

/// The identity of a runtime connection, also after its end.
#[derive(Debug)]
pub(crate) struct LaneName {
    pub(crate) number: u64,
    connection: Predecessor,
    /// Whether the server confirmed that the connection is gone.
    killed: OnceCell<bool>,
}

/// The commands in flight on a runtime connection.
#[derive(Debug)]
struct Flights {
    under_way: BTreeMap<u64, Flight>,
    sent: u64,
    last_used: Moment,
    /// True once the I/O thread no longer monitors the connection.
    is_abandoned: bool,
}

/// A command in flight.
#[derive(Debug)]
struct Flight {
    owner: Owner,
    sent: Moment,
    within: Duration,
    /// Instant since which the command counts as late.
    late_since: Option<Moment>,
    /// True once the command was reported as hung.
    is_told: bool,
    caller: Option<Waker>,
}

/// The result of a check of a runtime connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    InUse,
    /// Unused since this instant.
    Idle(Moment),
    /// Commands are far past their deadlines. Their callers were notified and do not run, because
    /// otherwise they would have left.
    Hung,
}

impl Lane {
    pub(crate) fn new(
        session: Session,
        number: u64,
        listener: u64,
        keeper: Arc<Keeper>,
        now: Moment,
    ) -> Self {
        Lane {
            name: Arc::new(LaneName::new(number, session.client_addr.clone())),
            session,
            listener,
            flights: Mutex::new(Flights::new(now)),
            keeper,
        }
    }

    /// Returns true if the session is up, and `listener` is still its command connection.
    pub(crate) fn serves(&self, listener: u64) -> bool {
        self.listener == listener && !self.session.end.is_set()
    }

    /// Returns true if the connection has capacity and its replies are on time.
    pub(crate) fn is_free(&self, now: Moment) -> bool {
        lock(&self.flights).are_on_time(now)
    }

    /// Waits for a reply on this connection. Returns `None` if it does not arrive in time.
    pub(crate) async fn answer<T>(
        &self,
        owner: Owner,
        sent: Moment,
        within: Duration,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        let flight = self.begin(owner, sent, within);
        let mut answer = pin!(answer);
        poll_fn(|context| match answer.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => flight.is_late(context).map(|()| None),
        })
        .await
    }

    fn begin(&self, owner: Owner, sent: Moment, within: Duration) -> UnderWay<'_> {
        let number = lock(&self.flights).begin(owner, sent, within);
        self.keeper.wake();
        UnderWay { lane: self, number }
    }

    /// Marks all unanswered commands, now and later, as late, because monitoring ends.
    pub(crate) fn abandon(&self) {
        let callers = lock(&self.flights).abandon();
        callers.into_iter().for_each(Waker::wake);
    }

    /// Notifies the callers of late commands, and returns the connection's state.
    pub(crate) fn look(&self, now: Moment) -> Found {
        let mut flights = lock(&self.flights);
        let last_used = flights.last_used;
        let mut late = Vec::new();
        let mut found = Found::Idle(last_used);
        for flight in flights.under_way.values_mut().filter(|f| !f.is_told) {
            if found != Found::Hung {
                found = if flight.hangs(now) {
                    Found::Hung
                } else {
                    Found::InUse
                };
            }
            if flight.late_since.is_none() && now >= flight.sent + flight.within {
                flight.late_since = Some(now);
                late.extend(flight.caller.take());
            }
        }
        drop(flights);
        late.into_iter().for_each(Waker::wake);
        found
    }

    /// Returns the owners of hung commands, once for every command.
    pub(crate) fn hung(&self, now: Moment) -> Vec<Owner> {
        let mut flights = lock(&self.flights);
        let under_way = flights.under_way.values_mut();
        let hung = under_way.filter(|flight| !flight.is_told && flight.hangs(now));
        hung.map(|flight| {
            flight.is_told = true;
            flight.owner
        })
        .collect()
    }
}

impl Flights {
    fn new(now: Moment) -> Self {
        Flights {
            under_way: BTreeMap::new(),
            sent: 0,
            last_used: now,
            is_abandoned: false,
        }
    }

    /// Records a command that is sent, and returns its number.
    fn begin(&mut self, owner: Owner, sent: Moment, within: Duration) -> u64 {
        self.sent += 1;
        self.last_used = sent;
        let flight = Flight {
            owner,
            sent,
            within,
            late_since: self.is_abandoned.then_some(sent),
            is_told: false,
            caller: None,
        };
        self.under_way.insert(self.sent, flight);
        self.sent
    }

    /// Marks current and later commands as late. Returns the wakers of the current callers.
    fn abandon(&mut self) -> Vec<Waker> {
        self.is_abandoned = true;
        let late = self.under_way.values_mut().map(|flight| {
            flight.late_since = Some(flight.sent);
            flight.caller.take()
        });
        late.flatten().collect()
    }

    /// Returns true if fewer than `MOST` are in flight, and the oldest is not late.
    fn are_on_time(&self, now: Moment) -> bool {
        let oldest = self.under_way.first_key_value();
        self.under_way.len() < MOST
            && oldest.is_none_or(|(_, flight)| now < flight.sent + LONGEST_DEBT)
    }
}

impl Flight {
    /// Returns true if the caller had time to leave after the command became late.
    fn hangs(&self, now: Moment) -> bool {
        let patience = self.within.max(LEAST_PATIENCE);
        self.late_since.is_some_and(|since| now >= since + patience)
    }
}

/// A command in flight, for which a caller waits.
struct UnderWay<'a> {
    lane: &'a Lane,
    number: u64,
}

impl UnderWay<'_> {
    /// Returns `Ready` once the command is late.
    fn is_late(&self, context: &Context<'_>) -> Poll<()> {
        let mut flights = lock(&self.lane.flights);
        match flights.under_way.get_mut(&self.number) {
            Some(flight) if flight.late_since.is_none() => {
                flight.caller = Some(context.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        lock(&self.lane.flights).under_way.remove(&self.number);
    }
}

/// The wake-up of the task that monitors runtime connections, which sleeps while they are unused.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    pub(crate) asleep: AtomicBool,
    pub(crate) used: Notify,
}

impl Keeper {
    /// Wakes the task. Called after the change that it has to find.
    pub(crate) fn wake(&self) {
        if self.asleep.load(Ordering::Acquire) && self.asleep.swap(false, Ordering::AcqRel) {
            self.used.notify_one();
        }
    }
}

impl LaneName {
    /// Creates the identity of a runtime connection that the server knows by `connection`.
    pub(crate) fn new(number: u64, connection: Option<ClientAddr>) -> Self {
        LaneName {
            number,
            connection: Predecessor(connection),
            killed: OnceCell::new(),
        }
    }

    /// Kills the connection over another one, so that nothing more of it is applied. Returns
    /// `false` if it may live on.
    pub(crate) async fn kill(&self, by: &Session) -> Result<bool, Trouble> {
        let kill = || handshake::kill(&*by.connection, Some(&self.connection));
        self.killed.get_or_try_init(kill).await.copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_owes_an_answer_for_too_long_is_asked_nothing_more() {
        let (now, long_ago) = (Moment(0) + LONGEST_DEBT, Moment(0));
        let are_on_time = |sent: &[Moment]| {
            let mut flights = Flights::new(now);
            for sent in sent {
                flights.begin(1, *sent, Duration::from_secs(1));
            }
            flights.are_on_time(now)
        };
        assert!(are_on_time(&[]) && are_on_time(&[Moment(1), now]));
        assert!(!are_on_time(&[long_ago]) && !are_on_time(&[long_ago, now]));
        assert!(are_on_time(&[now; MOST - 1]) && !are_on_time(&[now; MOST]));
    }

    /// No timer covers them any longer, so a caller that waited for a reply would wait forever.
    #[test]
    fn what_is_sent_on_an_abandoned_lane_is_late_at_once() {
        let (now, long) = (Moment(1), Duration::from_secs(1));
        let mut flights = Flights::new(now);
        let before = flights.begin(1, now, long);
        flights.under_way.get_mut(&before).unwrap().caller = Some(Waker::noop().clone());
        assert_eq!(flights.abandon().len(), 1);
        let after = flights.begin(2, now, long);
        for number in [before, after] {
            assert_eq!(flights.under_way[&number].late_since, Some(now));
        }
    }
}
