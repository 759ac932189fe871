//! One hold of a lock, as its guard and its body have it.

use std::sync::Arc;
use std::time::Duration;

use crate::config::options::Options;
use crate::error::Error;
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::loss::LossReason;
use crate::manager::engine::core::Core;
use crate::manager::engine::table::Entry;
use crate::protocol::claim::{Claim, Grip};
use crate::protocol::outcome::End;
use crate::util::clock::Moment;
use crate::util::notified::until;

/// A hold: shared by its guard, its body, and whoever was given a `Held`.
pub(crate) struct Hold {
    pub(crate) core: Arc<Core>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) grip: Grip,
}

impl Hold {
    /// The hold of a claim, if it is or was one.
    pub(crate) fn of(core: &Arc<Core>, entry: &Arc<Entry>) -> Option<Self> {
        let grip = core.claims.peek(entry, |claim| claim.grip().cloned())?;
        let (core, entry) = (core.clone(), entry.clone());
        Some(Hold { core, entry, grip })
    }

    /// The hold among these that is lost first.
    pub(crate) fn nearest<'a>(
        core: &Arc<Core>,
        entries: impl Iterator<Item = &'a Arc<Entry>>,
    ) -> Option<Self> {
        let believed = entries.filter_map(|entry| {
            let hold = Hold::of(core, entry)?;
            Some((hold.grip.belief.until()?, hold))
        });
        let (_, nearest) = believed.min_by_key(|(until, _)| *until)?;
        Some(nearest)
    }

    pub(crate) fn key(&self) -> &LockKey {
        &self.entry.request.key
    }

    pub(crate) fn options(&self) -> &Options {
        &self.entry.request.options
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.grip.token
    }

    /// For how long it has lasted.
    pub(crate) fn age(&self) -> Duration {
        self.core.clock.now().since(self.grip.since)
    }

    /// Whether the lock can be proven ours at this moment. Once false, it stays false.
    pub(crate) fn is_held(&self) -> bool {
        self.grip.belief.holds_at(self.core.clock.now())
    }

    /// For how long the hold is believed if no further renewal succeeds.
    pub(crate) fn remaining(&self) -> Duration {
        if !self.is_held() {
            return Duration::ZERO;
        }
        let until = self.grip.belief.until().unwrap_or(Moment(0));
        until.since(self.core.clock.now())
    }

    /// Until when it is believed, or was when it ended.
    pub(crate) fn believed_until(&self) -> Moment {
        self.grip.belief.last()
    }

    /// How long its safe deadline is over. More than a moment says that this process, or its
    /// machine, did not run.
    pub(crate) fn overdue(&self) -> Duration {
        self.core.clock.now().since(self.believed_until())
    }

    /// The error of a hold that is over, `None` while it is held.
    pub(crate) fn error(&self) -> Option<Error> {
        if self.is_held() {
            return None;
        }
        let now = self.core.clock.now();
        let end = self.core.claims.with(&self.entry, |claim| {
            claim.handle_time(now);
            claim.end().cloned()
        });
        // What is not held any more has ended somehow.
        Some(self.ended_by(&end.unwrap_or(End::Gone)))
    }

    /// The error of a hold that was lost, for the first who asks for it.
    pub(crate) fn untold_loss(&self) -> Option<Error> {
        let lost = self.core.claims.with(&self.entry, Claim::poll_loss);
        lost.map(|end| self.ended_by(&end))
    }

    /// The error of a hold that ended so.
    pub(crate) fn ended_by(&self, end: &End) -> Error {
        let (reason, completed) = match end {
            End::Limit => {
                return Error::HoldLimit {
                    key: self.key().to_string(),
                    fencing_token: self.grip.token,
                    max_hold: self.options().max_hold.unwrap_or_default(),
                    completed: false,
                    stopped: false,
                };
            }
            End::Gone => (LossReason::Gone, false),
            End::NotOurs => (LossReason::Gone, self.entry.is_completed()),
            End::NotRenewed(last_failure) => {
                let last_failure = last_failure.clone();
                (LossReason::NotRenewed { last_failure }, false)
            }
            End::Revoked(by) => (LossReason::Revoked { by: by.clone() }, false),
            End::ShutDown => (LossReason::ShutDown, false),
            End::Released => (LossReason::Released, true),
        };
        Error::Lost {
            key: self.key().to_string(),
            fencing_token: self.grip.token,
            completed,
            stopped: false,
            reason,
        }
    }

    /// Resolves as soon as the hold is over.
    pub(crate) async fn lost(&self) -> Error {
        until(&self.entry.over, || self.error()).await
    }

    /// Waits until the store has confirmed the full lease, and makes a confirmation that is still
    /// to be sent due now.
    pub(crate) async fn confirmed(&self) -> Result<(), Error> {
        let confirmed = until(&self.entry.confirmed, || {
            let now = self.core.clock.now();
            let is_confirmed = self.core.claims.with(&self.entry, |claim| {
                claim.confirm_now(now);
                claim.is_confirmed()
            });
            is_confirmed.then_some(())
        });
        tokio::select! {
            biased;
            error = self.lost() => Err(error),
            () = confirmed => Ok(()),
        }
    }
}
