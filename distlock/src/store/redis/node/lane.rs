//! A lane: a connection on the runtime of those who call, so that what they ask costs no hop to the
//! manager's thread.
//!
//! A call on a lane needs no timer: the manager's thread looks at what is under way, and says when
//! it is late.

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
use crate::store::redis::conn::session::{Predecessor, ServersName, Session};
use crate::util::clock::Moment;
use crate::util::mutex::lock;

/// Commands under way on one lane; more of them go home.
const MOST: usize = 1_024;

/// Who owes an answer for so long is asked nothing more until it has come.
const LONGEST_DEBT: Duration = Duration::from_millis(100);

/// Who was told that a command is late has so long to leave.
const LEAST_PATIENCE: Duration = Duration::from_millis(50);

/// A connection on a caller's runtime.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) session: Session,
    pub(crate) name: Arc<LaneName>,
    /// The connection that listens for what is asked on it.
    listener: u64,
    flights: Mutex<Flights>,
    keeper: Arc<Keeper>,
}

/// A lane as it is known after its end.
#[derive(Debug)]
pub(crate) struct LaneName {
    pub(crate) number: u64,
    connection: Predecessor,
    /// Whether the server said that it is gone.
    killed: OnceCell<bool>,
}

/// What is under way on a lane.
#[derive(Debug)]
struct Flights {
    under_way: BTreeMap<u64, Flight>,
    sent: u64,
    last_used: Moment,
    /// Nobody looks after it any more.
    is_abandoned: bool,
}

/// A command under way.
#[derive(Debug)]
struct Flight {
    owner: Owner,
    sent: Moment,
    within: Duration,
    /// Since when its caller was told that it is late.
    late_since: Option<Moment>,
    /// It was said to be hung.
    is_told: bool,
    caller: Option<Waker>,
}

/// What a look at a lane found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    InUse,
    /// Since then.
    Idle(Moment),
    /// Commands are long over their deadlines, and their callers were told and do not run, or would
    /// have left.
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
            name: Arc::new(LaneName::new(number, session.name.clone())),
            session,
            listener,
            flights: Mutex::new(Flights::new(now)),
            keeper,
        }
    }

    /// Whether something can be asked on it, while that connection listens.
    pub(crate) fn serves(&self, listener: u64) -> bool {
        self.listener == listener && !self.session.end.is_told()
    }

    /// Whether it has room, and answers.
    pub(crate) fn is_free(&self, now: Moment) -> bool {
        lock(&self.flights).are_on_time(now)
    }

    /// Waits for an answer on this lane. `None`: it did not come within its time.
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

    /// Nobody looks after it from now on: whatever is not answered at once is late.
    pub(crate) fn abandon(&self) {
        let callers = lock(&self.flights).abandon();
        callers.into_iter().for_each(Waker::wake);
    }

    /// Tells those whose commands are late.
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

    /// Whose commands hang, each told once.
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

    /// Marks all commands as late, and those that follow. Returns the wakers of their callers.
    fn abandon(&mut self) -> Vec<Waker> {
        self.is_abandoned = true;
        let late = self.under_way.values_mut().map(|flight| {
            flight.late_since = Some(flight.sent);
            flight.caller.take()
        });
        late.flatten().collect()
    }

    /// Returns true if there are not too many, and the oldest is not late.
    fn are_on_time(&self, now: Moment) -> bool {
        let oldest = self.under_way.first_key_value();
        self.under_way.len() < MOST
            && oldest.is_none_or(|(_, flight)| now < flight.sent + LONGEST_DEBT)
    }
}

impl Flight {
    /// Whether its caller had time to leave, after it was told.
    fn hangs(&self, now: Moment) -> bool {
        let patience = self.within.max(LEAST_PATIENCE);
        self.late_since.is_some_and(|since| now >= since + patience)
    }
}

/// A command that somebody waits for.
struct UnderWay<'a> {
    lane: &'a Lane,
    number: u64,
}

impl UnderWay<'_> {
    /// Ready when it is late.
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

/// Whoever looks after lanes: asleep, until something is sent on one.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    pub(crate) asleep: AtomicBool,
    pub(crate) used: Notify,
}

impl Keeper {
    /// Something was sent, and can be seen.
    pub(crate) fn wake(&self) {
        if self.asleep.load(Ordering::Acquire) && self.asleep.swap(false, Ordering::AcqRel) {
            self.used.notify_one();
        }
    }
}

impl LaneName {
    /// The name of a runtime connection, which the server knows by `connection`.
    pub(crate) fn new(number: u64, connection: Option<ServersName>) -> Self {
        LaneName {
            number,
            connection: Predecessor(connection),
            killed: OnceCell::new(),
        }
    }

    /// Makes sure, over another connection, that nothing more of it is applied. `false` if that
    /// cannot be said.
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

    /// No timer is behind them any more: who waited for their answers would wait for ever.
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
