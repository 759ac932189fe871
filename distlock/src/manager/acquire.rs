//! From a call to its hold: what is done for it on the manager's side while its caller waits.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::error::Error;
use crate::manager::core::{Core, Phase, shut_down_error};
use crate::manager::counted::Counted;
use crate::manager::hold::Hold;
use crate::manager::release;
use crate::manager::table::Entry;
use crate::protocol::claim::Claim;
use crate::protocol::outcome::{Command, Obstacle, Outcome, Refusal};
use crate::protocol::request::Request;
use crate::protocol::rules::Rules;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Ask, Occupant};

/// How much longer than its `wait` a caller listens for the manager's own, better error.
const SLACK: Duration = Duration::from_millis(250);

/// Acquires on the manager's own task, which cancels what it asked for if this future is dropped.
pub(crate) async fn acquire(core: &Arc<Core>, request: Request) -> Result<Arc<Hold>, Error> {
    let request = Arc::new(request);
    let limit = request.options.wait + request.timing.command_deadline() + SLACK;
    let (mut reply, answer) = oneshot::channel();
    let (of_task, wanted) = (core.clone(), request.clone());
    core.executor.spawn_later(async move {
        tokio::select! {
            biased;
            result = call(of_task, wanted) => {
                // What nobody receives releases itself.
                drop(reply.send(result));
            }
            () = reply.closed() => {}
        }
    });
    let answered = if tokio::runtime::Handle::try_current().is_ok() {
        tokio::time::timeout(limit, answer).await
    } else {
        Ok(answer.await)
    };
    let waited = core.clock.now().since(request.started);
    match answered {
        Ok(Ok(Ok(acquired))) => Ok(acquired.keep()),
        Ok(Ok(Err(error))) => Err(error),
        Ok(Err(_)) => Err(shut_down_error()),
        Err(_) if waited < limit / 2 => Err(Error::Config {
            detail: format!(
                "lock `{}`: tokio's time is paused here, or was advanced: {limit:?} of it went by in {waited:.1?}, \
                 and this manager's thread does not take part in that; in tests with paused time use \
                 `LockManager::builder().memory_on_current_runtime()`",
                request.key
            ),
        }),
        Err(_) => Err(Trouble::timed_out(limit).into_error(Some(request.key.to_string()), waited)),
    }
}

/// A hold that nobody has received yet: dropped, it is released.
#[derive(Debug)]
struct Acquired {
    hold: Arc<Hold>,
    is_kept: bool,
}

impl Acquired {
    fn keep(mut self) -> Arc<Hold> {
        self.is_kept = true;
        self.hold.clone()
    }
}

impl Drop for Acquired {
    fn drop(&mut self) {
        if !self.is_kept {
            release::release_in_background(&self.hold.core, &self.hold.entry);
        }
    }
}

/// An owner id whose call still asks. Dropped before it became a hold, it is taken back, whatever the store
/// knows of it.
struct Asker {
    core: Arc<Core>,
    entry: Arc<Entry>,
    holds: bool,
    /// A shutdown waits for calls under way, so that what they undo is undone.
    _under_way: Counted,
}

impl Drop for Asker {
    fn drop(&mut self) {
        if !self.holds {
            release::release_in_background(&self.core, &self.entry);
        }
    }
}

/// One call, with as many owner ids as it takes.
async fn call(core: Arc<Core>, request: Arc<Request>) -> Result<Acquired, Error> {
    let mut obstacle = None;
    loop {
        let mut asker = Asker::new(&core, &request, obstacle.take());
        match asker.outcome().await {
            Outcome::Held => return asker.hold(),
            Outcome::Again(last) => obstacle = last,
            Outcome::Refused(refusal) => return Err(error(&core, &request, refusal)),
        }
    }
}

impl Asker {
    fn new(core: &Arc<Core>, request: &Arc<Request>, obstacle: Option<Obstacle>) -> Self {
        let claim = Claim::new(request.clone(), obstacle, Rules::in_force());
        // Random, for a pushed grant that names one is believed.
        let owner = core.random.next();
        let entry = core.claims.enter(owner, claim, core.in_store());
        // A shutdown that has begun either finds it there, or is seen here.
        if core.phase() != Phase::Running {
            let now = core.clock.now();
            core.claims.with(&entry, |claim| claim.handle_shutdown(now));
        }
        Asker {
            core: core.clone(),
            entry,
            holds: false,
            _under_way: core.under_way.one(),
        }
    }

    /// Does what the claim says until it has come out.
    async fn outcome(&self) -> Outcome {
        let (core, entry, request) = (&*self.core, &self.entry, &*self.entry.request);
        loop {
            let now = core.clock.now();
            let next = core.claims.with(entry, |claim| {
                claim.handle_time(now);
                if let Some(outcome) = claim.poll_outcome() {
                    return Err(outcome);
                }
                let command = claim.poll_command(now);
                claim.poll_outcome().map_or(Ok(command), Err)
            });
            let command = match next {
                Ok(command) => command,
                Err(outcome) => return outcome,
            };
            match command {
                Some(Command::Ask { wait, within }) => {
                    let ask = Ask {
                        key: &request.key,
                        owner: entry.owner,
                        timing: request.timing,
                        wait,
                        within,
                    };
                    let answer = core.store.ask(ask).await;
                    let undone = answer.is_err() && !Rules::in_force().no_way_back;
                    let now = core.clock.now();
                    (core.claims).with(entry, |claim| claim.handle_answer(answer, now));
                    if undone {
                        let (key, lease) = (request.key.clone(), request.timing.lease);
                        release::undo_unknown(&self.core, key, entry.owner, lease);
                    }
                }
                Some(Command::Confirm { within }) => {
                    let answer = (core.store)
                        .confirm(&request.key, entry.owner, request.timing, within)
                        .await;
                    let now = core.clock.now();
                    (core.claims).with(entry, |claim| claim.handle_confirmation(answer, now));
                }
                Some(Command::Renew) | None => self.wait().await,
            }
        }
    }

    /// Waits until something has come in, the wait is over, or a failed ask may be repeated.
    async fn wait(&self) {
        let (core, entry) = (&*self.core, &self.entry);
        let retry_at = core.claims.peek(entry, |claim| claim.poll_retry());
        let retry = async {
            match retry_at {
                Some(at) => {
                    tokio::time::sleep(at.since(core.clock.now())).await;
                    core.store.ready().await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = entry.changed.notified() => {}
            () = sleep_until(core, entry.request.deadline()) => {}
            () = retry => core.claims.with(entry, Claim::handle_retry),
        }
    }

    fn hold(&mut self) -> Result<Acquired, Error> {
        let grip = (self.core.claims).peek(&self.entry, |claim| claim.grip().cloned());
        let grip = grip.ok_or_else(shut_down_error)?;
        // From here on the hold's guard answers for the id.
        self.holds = true;
        let hold = Hold::new(self.core.clone(), self.entry.clone(), grip);
        Ok(Acquired {
            hold: Arc::new(hold),
            is_kept: false,
        })
    }
}

async fn sleep_until(core: &Core, when: Moment) {
    tokio::time::sleep(when.since(core.clock.now())).await;
}

fn error(core: &Core, request: &Request, refusal: Refusal) -> Error {
    let waited = request.waited(core.clock.now());
    let key = request.key.to_string();
    match refusal {
        Refusal::Busy(occupant) => Error::Busy {
            key,
            waited,
            holders: occupant.iter().map(Occupant::holder).collect(),
        },
        Refusal::Unavailable(trouble) => {
            // Who waited for a connection is told why there is still none.
            let still = core.store.outage().filter(|_| trouble.unsent);
            still.unwrap_or(trouble).into_error(Some(key), waited)
        }
        Refusal::Foreign(detail) => Error::ForeignKey { key, detail },
        Refusal::ShutDown => shut_down_error(),
    }
}
