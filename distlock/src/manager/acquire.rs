//! From an ask to a hold: what one call does on the manager's side while its caller waits.

use std::borrow::Cow;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::error::{Error, LossReason, Outage};
use crate::key::LockKey;
use crate::manager::counted::Counted;
use crate::manager::engine::{Engine, Phase};
use crate::manager::hold::{End, Hold, NewHold};
use crate::manager::waiters::{Signal, Slot};
use crate::protocol::timing::Timing;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Ask, AskReply, Grant, Occupant, Proof};
#[cfg(sabotage)]
use crate::sabotage::{self, Saboteur};

/// The pause after a transient failure of an ask: it doubles while the server answers and refuses, for many
/// may wait.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What a caller wants.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) key: LockKey,
    pub(crate) label: Option<Cow<'static, str>>,
    pub(crate) timing: Timing,
    /// Zero tries once and never stands in the queue.
    pub(crate) wait: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) started: Moment,
}

/// What stood in the way last.
#[derive(Debug)]
enum Obstacle {
    Occupied(Option<Occupant>),
    Trouble(Trouble),
}

/// How one attempt, that is one owner id, came out.
enum Attempt {
    Held(Arc<Hold>),
    /// The id was cancelled; ask with a new one.
    Again,
    Ended(Error),
}

/// One owner id on its way ask\* -> (cancel | release)\* (design rule 1). Dropped before it became a
/// hold, it cancels itself, whatever the store knows of it.
struct Ticket {
    engine: Arc<Engine>,
    slot: Arc<Slot>,
    timing: Timing,
    /// Something may be in the store under this id.
    asked: bool,
    /// A shutdown waits for calls under way, so that what they undo is undone.
    _under_way: Counted,
    _in_store: Counted,
}

impl Ticket {
    fn new(engine: &Arc<Engine>, order: &Order) -> Self {
        let owner = engine.next_owner();
        Ticket {
            engine: engine.clone(),
            slot: engine.waiters.enter(order.key.clone(), owner),
            timing: order.timing,
            asked: false,
            _under_way: engine.under_way(),
            _in_store: engine.in_store(),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.engine.waiters.leave(self.slot.owner);
        #[cfg(sabotage)]
        if sabotage::is(Saboteur::EntryLeaked) && self.slot.is_queued() {
            self.asked = false;
        }
        if self.asked {
            self.engine
                .undo(self.slot.key.clone(), self.slot.owner, self.timing);
        }
    }
}

/// Acquires, within the order's `wait`. Dropping the future leaves nothing behind.
pub(crate) async fn acquire(engine: Arc<Engine>, order: Order) -> Result<Arc<Hold>, Error> {
    let mut obstacle = None;
    loop {
        let mut ticket = Ticket::new(&engine, &order);
        match attempt(&engine, &order, &mut ticket, &mut obstacle).await {
            Attempt::Held(hold) => {
                // From here on the hold's guard answers for the id.
                ticket.asked = false;
                return Ok(hold);
            }
            Attempt::Again => {
                // What is cancelled here was granted: no entry of a wait.
                #[cfg(sabotage)]
                ticket.slot.set_asking();
            }
            Attempt::Ended(error) => {
                #[cfg(sabotage)]
                if sabotage::needs_no_release(&error) {
                    ticket.asked = false;
                }
                return Err(error);
            }
        }
    }
}

/// `obstacle` is what stood in the way last, also of earlier attempts of the same call.
async fn attempt(
    engine: &Arc<Engine>,
    order: &Order,
    ticket: &mut Ticket,
    obstacle: &mut Option<Obstacle>,
) -> Attempt {
    let deadline = order.started + order.wait;
    let mut was_late = false;
    let mut pause = FIRST_PAUSE;
    // A call that does not wait asks once.
    let mut asks_left = if order.wait.is_zero() { 1 } else { u32::MAX };
    loop {
        let wait = deadline.since(engine.clock.now());
        if engine.phase() != Phase::Running {
            return Attempt::Ended(engine.shut_down_error());
        }
        if asks_left == 0 || (wait.is_zero() && !order.wait.is_zero()) {
            return Attempt::Ended(order.error(engine, ticket, obstacle.take()));
        }
        asks_left -= 1;
        let was_asked = mem::replace(&mut ticket.asked, true);
        ticket.slot.set_asking();
        match ask(engine, order, ticket, wait).await {
            Ok(AskReply::Held(proof)) => return held(engine, order, ticket, proof),
            // The lock is free behind more dead waiters than one call removes: go on.
            Ok(AskReply::Queued(None)) => {}
            Ok(AskReply::Queued(occupant)) => {
                ticket.slot.set_queued(&engine.waiters, occupant.clone());
                *obstacle = Some(Obstacle::Occupied(occupant));
                match ticket.next_signal(deadline).await {
                    Some(signal) => {
                        if let Some(end) = on_signal(engine, order, ticket, signal).await {
                            return end;
                        }
                    }
                    None => return Attempt::Ended(order.error(engine, ticket, obstacle.take())),
                }
            }
            Ok(AskReply::Busy(occupant) | AskReply::Full(occupant)) => {
                // Nothing of this ask is in the store.
                ticket.asked = was_asked;
                let occupied = Some(Obstacle::Occupied(occupant));
                return Attempt::Ended(order.error(engine, ticket, occupied));
            }
            // It was not applied, for the server's clock was not known well enough. Now it is.
            Ok(AskReply::Late) => {
                if order.wait.is_zero() && !mem::replace(&mut was_late, true) {
                    asks_left += 1;
                }
                let late = Trouble::timed_out(order.timing.command_deadline());
                *obstacle = Some(Obstacle::Trouble(late));
            }
            Ok(AskReply::Foreign(detail)) => return Attempt::Ended(order.foreign(detail)),
            Err(trouble) => {
                if trouble.unsent {
                    ticket.asked = was_asked;
                    pause = FIRST_PAUSE;
                }
                let stop = order.wait.is_zero() || !trouble.outage.is_transient();
                // An ask that the end of the wait cut short says less than what was known before.
                let cut_short = trouble.outage == Outage::TimedOut
                    && !order.wait.is_zero()
                    && wait < order.timing.command_deadline();
                if obstacle.is_none() || !cut_short {
                    *obstacle = Some(Obstacle::Trouble(trouble));
                }
                #[cfg(sabotage)]
                if sabotage::is(Saboteur::UndoThenAskAgain) {
                    engine.undo(order.key.clone(), ticket.slot.owner, order.timing);
                }
                if stop {
                    return Attempt::Ended(order.error(engine, ticket, obstacle.take()));
                }
                // The ask may have been applied: a grant can still arrive meanwhile.
                if let Some(signal) = ticket.next_signal_or_retry(deadline, pause).await
                    && let Some(end) = on_signal(engine, order, ticket, signal).await
                {
                    return end;
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
                #[cfg(sabotage)]
                if sabotage::is(Saboteur::NoIdempotentAcquire) {
                    ticket.asked = false;
                    return Attempt::Again;
                }
            }
        }
    }
}

async fn ask(
    engine: &Engine,
    order: &Order,
    ticket: &Ticket,
    wait: Duration,
) -> Result<AskReply, Trouble> {
    let deadline = order.timing.command_deadline();
    let within = if order.wait.is_zero() {
        deadline
    } else {
        deadline.min(wait)
    };
    let ask = Ask {
        key: &order.key,
        owner: ticket.slot.owner,
        timing: order.timing,
        wait,
        within,
    };
    engine.store().ask(ask).await
}

/// `None`: ask again with the same id.
async fn on_signal(
    engine: &Arc<Engine>,
    order: &Order,
    ticket: &Ticket,
    signal: Signal,
) -> Option<Attempt> {
    match signal {
        Signal::Missing => None,
        Signal::Closed => Some(Attempt::Ended(engine.shut_down_error())),
        Signal::Foreign(detail) => Some(Attempt::Ended(order.foreign(detail))),
        Signal::Yours => Some(confirm_first(engine, order, ticket).await),
        Signal::Granted(grant) => match believed_until(engine, order, &grant) {
            Some(until) => {
                let now = engine.clock.now();
                let hold = order.hold(engine, ticket, grant.token, until);
                Some(watched(engine, hold, now, false))
            }
            None => Some(confirm_first(engine, order, ticket).await),
        },
    }
}

/// Until when a pushed grant is believed without asking; `None` if too little is left of it, or
/// its age is not known.
fn believed_until(engine: &Engine, order: &Order, grant: &Grant) -> Option<Moment> {
    let timing = Timing::new(grant.lease.min(order.timing.lease));
    let until = grant.granted_at? + timing.validity();
    let left = until.since(engine.clock.now());
    (left >= timing.lease / 2).then_some(until)
}

/// Proves a grant before the body starts. What cannot be proven is cancelled: it was not lost, for
/// nothing ran under it.
async fn confirm_first(engine: &Arc<Engine>, order: &Order, ticket: &Ticket) -> Attempt {
    let within = order.timing.command_deadline();
    let store = engine.store();
    match store
        .confirm(&order.key, ticket.slot.owner, order.timing, within)
        .await
    {
        Ok(Some(proof)) => held(engine, order, ticket, proof),
        Ok(None) | Err(_) => Attempt::Again,
    }
}

/// A hold takes its token from the reply that proves it, never from an older push.
fn held(engine: &Arc<Engine>, order: &Order, ticket: &Ticket, proof: Proof) -> Attempt {
    let until = proof.sent + order.timing.validity();
    if engine.clock.now() >= until {
        return Attempt::Again;
    }
    let hold = order.hold(engine, ticket, proof.token, until);
    watched(engine, hold, proof.sent, true)
}

/// Hands a hold to the watchdog. A shutdown that has begun either finds it there, or is seen here.
fn watched(engine: &Engine, hold: Arc<Hold>, proven_at: Moment, confirmed: bool) -> Attempt {
    engine.watchdog.watch(hold.clone(), proven_at, confirmed);
    if engine.phase() == Phase::Running {
        return Attempt::Held(hold);
    }
    engine.watchdog.forget(hold.owner);
    hold.finish(End::Lost(LossReason::ShutDown));
    Attempt::Ended(engine.shut_down_error())
}

impl Ticket {
    async fn next_signal(&self, deadline: Moment) -> Option<Signal> {
        let left = deadline.since(self.engine.clock.now());
        tokio::time::timeout(left, self.slot.next()).await.ok()
    }

    /// Waits a moment, or until the store is back, or for a signal.
    async fn next_signal_or_retry(&self, deadline: Moment, pause: Duration) -> Option<Signal> {
        let retry = async {
            tokio::time::sleep(pause).await;
            self.engine.store().ready().await;
        };
        tokio::select! {
            biased;
            signal = self.next_signal(deadline) => signal,
            () = retry => None,
        }
    }
}

impl Order {
    fn hold(
        &self,
        engine: &Engine,
        ticket: &Ticket,
        token: crate::FencingToken,
        safe_until: Moment,
    ) -> Arc<Hold> {
        let new = NewHold {
            key: self.key.clone(),
            label: self.label.clone(),
            owner: ticket.slot.owner,
            token,
            timing: self.timing,
            max_hold: self.max_hold,
            min_hold: self.min_hold,
            safe_until,
            in_store: engine.in_store(),
        };
        Arc::new(Hold::new(new, engine.clock.clone()))
    }

    fn error(&self, engine: &Engine, ticket: &Ticket, obstacle: Option<Obstacle>) -> Error {
        // Who does not wait has not waited, however long the command took.
        let waited = if self.wait.is_zero() {
            Duration::ZERO
        } else {
            engine.clock.now().since(self.started)
        };
        let key = self.key.to_string();
        match obstacle {
            Some(Obstacle::Trouble(trouble)) => {
                // Who waited for a connection is told why there is still none.
                let still = engine.store().outage().filter(|_| trouble.unsent);
                still.unwrap_or(trouble).into_error(Some(key), waited)
            }
            Some(Obstacle::Occupied(occupant)) => {
                let seen = ticket.slot.occupant().or(occupant);
                Error::Busy {
                    key,
                    waited,
                    holder: seen.map(|occupant| occupant.holder()),
                }
            }
            None => Trouble::timed_out(self.wait).into_error(Some(key), waited),
        }
    }

    fn foreign(&self, detail: String) -> Error {
        Error::ForeignKey {
            key: self.key.to_string(),
            detail,
        }
    }
}
