//! One hold of a lock: until when it is believed, and how it ended.

use std::borrow::Cow;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::error::{Error, LossReason};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::manager::counted::Counted;
use crate::mutex::lock;
use crate::protocol::timing::Timing;
use crate::protocol::words::Owner;

/// Stands in `safe_until` once the hold is over. It never becomes anything else again.
const OVER: u64 = 0;

/// A hold, shared by its guard, its body and the watchdog.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) key: LockKey,
    pub(crate) label: Option<Cow<'static, str>>,
    pub(crate) owner: Owner,
    pub(crate) token: FencingToken,
    pub(crate) timing: Timing,
    pub(crate) acquired: Moment,
    pub(crate) min_hold: Option<Duration>,
    max_hold: Option<Duration>,
    clock: Arc<dyn Clock>,
    /// A forked child has a copy of the hold, but the lock stays its parent's.
    process: u32,
    /// The safe deadline (design section 3.2) in clock nanoseconds, or `OVER`.
    safe_until: AtomicU64,
    /// The safe deadline when the hold ended.
    #[cfg(test)]
    pub(crate) believed_until: AtomicU64,
    end: Mutex<Option<End>>,
    last_failure: Mutex<String>,
    over: Notify,
    /// Its loss was told.
    told: AtomicBool,
    /// Bodies that run under this hold and stop by themselves when it is lost.
    bodies: AtomicUsize,
    /// Its key may outlive the belief in it.
    _in_store: Counted,
}

/// How a hold ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Released,
    Lost(LossReason),
    Limit,
}

/// What a hold is made of.
#[derive(Debug)]
pub(crate) struct NewHold {
    pub(crate) key: LockKey,
    pub(crate) label: Option<Cow<'static, str>>,
    pub(crate) owner: Owner,
    pub(crate) token: FencingToken,
    pub(crate) timing: Timing,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) safe_until: Moment,
    pub(crate) in_store: Counted,
}

impl Hold {
    pub(crate) fn new(new: NewHold, clock: Arc<dyn Clock>) -> Self {
        let hold = Hold {
            key: new.key,
            label: new.label,
            owner: new.owner,
            token: new.token,
            timing: new.timing,
            acquired: clock.now(),
            min_hold: new.min_hold,
            max_hold: new.max_hold,
            clock,
            process: std::process::id(),
            safe_until: AtomicU64::new(OVER + 1),
            #[cfg(test)]
            believed_until: AtomicU64::new(OVER),
            end: Mutex::new(None),
            last_failure: Mutex::new(String::new()),
            over: Notify::new(),
            told: AtomicBool::new(false),
            bodies: AtomicUsize::new(0),
            _in_store: new.in_store,
        };
        let until = hold.capped(new.safe_until);
        hold.safe_until.store(until.0, Ordering::Release);
        hold
    }

    /// When the hold has lasted as long as it may.
    pub(crate) fn limit(&self) -> Option<Moment> {
        self.max_hold.map(|limit| self.acquired + limit)
    }

    fn capped(&self, until: Moment) -> Moment {
        #[cfg(sabotage)]
        let until = crate::sabotage::safe_until(until, self.max_hold);
        self.limit().map_or(until, |limit| until.min(limit))
    }

    /// Until when the hold is believed; `None` once it is over.
    pub(crate) fn safe_until(&self) -> Option<Moment> {
        match self.safe_until.load(Ordering::Acquire) {
            OVER => None,
            until => Some(Moment(until)),
        }
    }

    /// Whether the lock can be proven ours at this moment. Once false, it stays false.
    pub(crate) fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// For how long the hold is believed if no further renewal succeeds.
    pub(crate) fn remaining(&self) -> Duration {
        let Some(until) = self.safe_until() else {
            return Duration::ZERO;
        };
        if !self.is_of_this_process() {
            return Duration::ZERO;
        }
        let now = self.clock.now();
        if now < until {
            return until.since(now);
        }
        self.run_out(now);
        Duration::ZERO
    }

    /// A forked child touches nothing of its copy: its parent may have held the mutex, and owns the wakers.
    fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    fn run_out(&self, now: Moment) {
        let end = match self.limit() {
            Some(limit) if now >= limit => End::Limit,
            _ => End::Lost(LossReason::NotRenewed {
                last_failure: lock(&self.last_failure).clone(),
            }),
        };
        self.finish(end);
    }

    /// Believes the hold for longer, after a proof. A proof that comes too late changes nothing.
    pub(crate) fn extend(&self, until: Moment) -> bool {
        let until = self.capped(until);
        loop {
            if !self.is_held() {
                return false;
            }
            let current = self.safe_until.load(Ordering::Acquire);
            if current == OVER {
                return false;
            }
            if current >= until.0 {
                return true;
            }
            let swapped = self.safe_until.compare_exchange(
                current,
                until.0,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if swapped.is_ok() {
                return true;
            }
        }
    }

    /// Ends the hold, unless it has ended already. Says whether this call ended it.
    pub(crate) fn finish(&self, how: End) -> bool {
        {
            let mut end = lock(&self.end);
            if end.is_some() {
                return false;
            }
            *end = Some(how);
            #[cfg(test)]
            self.believed_until
                .store(self.safe_until.load(Ordering::Acquire), Ordering::Release);
            self.safe_until.store(OVER, Ordering::Release);
        }
        self.over.notify_waiters();
        true
    }

    /// Ends the hold for a release. Until when it was believed, if it still is.
    pub(crate) fn end_by_release(&self) -> Option<Moment> {
        let until = self.safe_until().filter(|_| self.is_held());
        until.filter(|_| self.finish(End::Released))
    }

    /// Whether nobody was told of its loss before.
    pub(crate) fn is_told_first(&self) -> bool {
        !self.told.swap(true, Ordering::AcqRel)
    }

    /// The error of a hold whose release found that the store did not have it any more.
    pub(crate) fn gone(&self) -> Error {
        self.lost_because(LossReason::Gone, true)
    }

    fn lost_because(&self, reason: LossReason, completed: bool) -> Error {
        Error::Lost {
            key: self.key.to_string(),
            fencing_token: self.token,
            completed,
            reason,
        }
    }

    /// Remembers why a renewal failed, for the error if none succeeds.
    pub(crate) fn note_failure(&self, failure: String) {
        *lock(&self.last_failure) = failure;
    }

    /// The error of a hold that is over, `None` while it is held.
    pub(crate) fn error(&self) -> Option<Error> {
        if self.is_held() {
            return None;
        }
        let end = if self.is_of_this_process() {
            lock(&self.end).clone()?
        } else {
            End::Lost(LossReason::ShutDown)
        };
        Some(match end {
            End::Limit => Error::HoldLimit {
                key: self.key.to_string(),
                fencing_token: self.token,
                max_hold: self.max_hold.unwrap_or_default(),
                completed: false,
            },
            End::Lost(reason) => self.lost_because(reason, false),
            End::Released => self.lost_because(LossReason::Released, true),
        })
    }

    /// Resolves as soon as the hold is over.
    pub(crate) async fn lost(&self) -> Error {
        loop {
            let mut over = pin!(self.over.notified());
            over.as_mut().enable();
            if let Some(error) = self.error() {
                return error;
            }
            over.await;
        }
    }

    /// A future that is woken when the hold ends; the caller asks `is_held` itself.
    pub(crate) fn over(&self) -> impl Future<Output = ()> + '_ {
        self.over.notified()
    }

    pub(crate) fn body(&self) -> RunningBody<'_> {
        self.bodies.fetch_add(1, Ordering::AcqRel);
        RunningBody(self)
    }

    pub(crate) fn has_body(&self) -> bool {
        self.bodies.load(Ordering::Acquire) > 0
    }
}

/// Counts a body for as long as it may run.
#[derive(Debug)]
pub(crate) struct RunningBody<'a>(&'a Hold);

impl Drop for RunningBody<'_> {
    fn drop(&mut self) {
        self.0.bodies.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[derive(Debug)]
    struct HandClock(AtomicU64);

    impl HandClock {
        fn set(&self, ms: u64) {
            self.0.store(ms * 1_000_000, Ordering::SeqCst);
        }
    }

    impl Clock for HandClock {
        fn now(&self) -> Moment {
            Moment(self.0.load(Ordering::SeqCst))
        }

        fn wall_micros(&self) -> u64 {
            0
        }
    }

    fn at(ms: u64) -> Moment {
        Moment(ms * 1_000_000)
    }

    fn hold(max_hold: Option<Duration>) -> (Arc<HandClock>, Hold) {
        let clock = Arc::new(HandClock(AtomicU64::new(0)));
        clock.set(1_000);
        let new = NewHold {
            key: LockKey::new("k").unwrap(),
            label: None,
            owner: 1,
            token: FencingToken::new(7),
            timing: Timing::new(Duration::from_millis(300)),
            max_hold,
            min_hold: None,
            in_store: crate::manager::counted::Counter::default().one(),
            safe_until: at(1_300),
        };
        let hold = Hold::new(new, clock.clone());
        (clock, hold)
    }

    #[test]
    fn a_hold_ends_at_its_safe_deadline_and_stays_over() {
        let (clock, hold) = hold(None);
        clock.set(1_299);
        assert!(hold.is_held());
        clock.set(1_300);
        assert!(!hold.is_held());
        assert!(
            !hold.extend(at(9_000)),
            "a late renewal must not revive a hold"
        );
        clock.set(1_200);
        assert!(!hold.is_held(), "lost stays lost");
        assert!(matches!(
            hold.error(),
            Some(Error::Lost {
                completed: false,
                reason: LossReason::NotRenewed { .. },
                ..
            })
        ));
    }

    #[test]
    fn a_renewal_never_shortens_and_never_passes_the_limit() {
        let (clock, hold) = hold(Some(Duration::from_millis(500)));
        assert!(hold.extend(at(1_200)));
        assert_eq!(hold.safe_until(), Some(at(1_300)));
        assert!(hold.extend(at(9_000)));
        assert_eq!(hold.safe_until(), Some(at(1_500)));
        clock.set(1_500);
        assert!(matches!(hold.error(), Some(Error::HoldLimit { .. })));
    }

    #[test]
    fn the_first_end_wins() {
        let (_clock, hold) = hold(None);
        assert!(hold.finish(End::Lost(LossReason::Gone)));
        assert!(!hold.finish(End::Released));
        assert!(matches!(
            hold.error(),
            Some(Error::Lost {
                reason: LossReason::Gone,
                ..
            })
        ));
    }

    #[tokio::test]
    async fn lost_resolves_for_everybody_who_waits() {
        let (_clock, hold) = hold(None);
        let hold = Arc::new(hold);
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let hold = hold.clone();
                tokio::spawn(async move { hold.lost().await })
            })
            .collect();
        tokio::task::yield_now().await;
        hold.finish(End::Lost(LossReason::Gone));
        for task in waiting {
            assert!(task.await.unwrap().is_lost());
        }
    }
}
