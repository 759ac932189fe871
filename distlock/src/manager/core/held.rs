//! The handle of a hold: what its guard, its body and the reports about it use.

use std::sync::Arc;
use std::time::Duration;

use crate::config::options::Options;
use crate::error::{BodyState, Error};
use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::loss::LossReason;
use crate::manager::core::Core;
use crate::manager::core::registry::RegistryEntry;
use crate::protocol::acquisition::Acquisition;
use crate::protocol::hold::Hold;
use crate::protocol::kind::Kind;
use crate::protocol::outcome::HoldEnd;
use crate::util::clock::BootInstant;
use crate::util::sync::wait_until;

/// A hold, and the acquisition that it belongs to. Cheap to clone, and may outlive the hold. Its
/// public form is [`HeldLock`](crate::HeldLock).
#[derive(Clone)]
pub(crate) struct HoldHandle {
    pub(crate) core: Arc<Core>,
    pub(crate) entry: Arc<RegistryEntry>,
    pub(crate) hold: Arc<Hold>,
}

impl HoldHandle {
    pub(crate) fn fencing_token(&self) -> FencingToken {
        self.hold.token
    }

    pub(crate) fn key(&self) -> &str {
        self.lock_key().as_str()
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.core.is_inherited() && self.hold.check_and_close(self.core.clock.now())
    }

    pub(crate) fn remaining(&self) -> Duration {
        if !self.is_held() {
            return Duration::ZERO;
        }
        let safe_until = self.hold.safe_until().unwrap_or(BootInstant(0));
        safe_until.since(self.core.clock.now())
    }

    pub(crate) async fn confirmed(&self) -> Result<(), Error> {
        let confirmed = wait_until(&self.entry.confirmed, || {
            let is_confirmed = self.core.update(&self.entry, |acquisition, now| {
                acquisition.confirm_now(now);
                acquisition.is_confirmed()
            });
            is_confirmed.then_some(())
        });
        tokio::select! {
            biased;
            error = self.lost() => Err(error),
            () = confirmed => Ok(()),
        }
    }

    pub(crate) async fn lost(&self) -> Error {
        wait_until(&self.entry.ended, || self.check_error()).await
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        self.check_error().map_or(Ok(()), Err)
    }

    /// Returns the hold of an acquisition, if the acquisition is or was held.
    pub(crate) fn of(core: &Arc<Core>, entry: &Arc<RegistryEntry>) -> Option<Self> {
        let hold = entry.peek(|acquisition| acquisition.hold().cloned())?;
        let (core, entry) = (core.clone(), entry.clone());
        Some(HoldHandle { core, entry, hold })
    }

    /// Returns the hold with the earliest safe deadline.
    pub(crate) fn first_to_expire<'a>(
        core: &Arc<Core>,
        entries: impl Iterator<Item = &'a Arc<RegistryEntry>>,
    ) -> Option<Self> {
        let with_deadline = entries.filter_map(|entry| {
            let held = HoldHandle::of(core, entry)?;
            Some((held.hold.safe_until()?, held))
        });
        let (_, first) = with_deadline.min_by_key(|(safe_until, _)| *safe_until)?;
        Some(first)
    }

    pub(crate) fn lock_key(&self) -> &LockKey {
        &self.entry.request.key
    }

    pub(crate) fn kind(&self) -> Kind {
        self.hold.kind
    }

    /// Returns the token that users see, see [`Kind::public_token`].
    pub(crate) fn public_token(&self) -> Option<FencingToken> {
        self.kind().public_token(self.hold.token)
    }

    pub(crate) fn options(&self) -> &Options {
        &self.entry.request.options
    }

    /// Returns the time since the hold began.
    pub(crate) fn age(&self) -> Duration {
        self.core.clock.now().since(self.hold.since)
    }

    /// Returns the safe deadline, even after the hold has ended.
    pub(crate) fn safe_until(&self) -> BootInstant {
        self.hold.last_safe_until()
    }

    /// Returns the error of a hold that has ended, or `None` while it is held.
    pub(crate) fn check_error(&self) -> Option<Error> {
        if self.is_held() {
            return None;
        }
        if let Err(error) = self.core.check_process() {
            return Some(error);
        }
        let end = self.core.update(&self.entry, |acquisition, now| {
            acquisition.check_end_of(self.hold.token, now)
        })?;
        Some(self.end_error(end))
    }

    /// Downgrades a write hold, and returns the read hold that replaces it. This one then counts as
    /// released.
    pub(crate) async fn downgrade(&self) -> Result<HoldHandle, Error> {
        self.confirmed().await?;
        let (core, entry) = (&self.core, &self.entry);
        if !core.update(entry, Acquisition::begin_downgrade)
            && let Some(error) = self.check_error()
        {
            return Err(error);
        }
        wait_until(&entry.changed, || {
            let new = HoldHandle::of(core, entry)?;
            if new.hold.token != self.hold.token {
                return Some(Ok(new));
            }
            let end = entry.peek(|acquisition| acquisition.end().cloned())?;
            Some(Err(self.end_error(end)))
        })
        .await
    }

    /// Returns the state of the work under a hold that was lost.
    pub(crate) fn body_state(&self, reason: &LossReason) -> BodyState {
        // Only a release finds this after the work.
        if *reason == LossReason::Gone && self.entry.is_completed() {
            BodyState::Completed
        } else {
            BodyState::Running
        }
    }

    /// Returns the error for a hold that ended this way.
    pub(crate) fn end_error(&self, end: HoldEnd) -> Error {
        let (key, fencing_token) = (self.key().to_owned(), self.public_token());
        match end {
            // No code has a hold that was not claimed.
            HoldEnd::Released | HoldEnd::Unclaimed => Error::Released { key, fencing_token },
            HoldEnd::MaxHold => Error::MaxHoldExceeded {
                key,
                fencing_token,
                max_hold: self.options().max_hold.unwrap_or_default(),
                body: BodyState::Running,
            },
            HoldEnd::Lost(reason) => Error::Lost {
                key,
                fencing_token,
                body: self.body_state(&reason),
                reason,
            },
        }
    }
}
