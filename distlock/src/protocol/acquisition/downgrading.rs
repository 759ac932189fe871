//! The stage between a write hold and the read hold that replaces it.

use crate::protocol::acquisition::holding::Holding;
use crate::protocol::hold::GrantOrigin;
use crate::protocol::messages::Proof;
use crate::protocol::outcome::{Action, HoldEnd};
use crate::protocol::request::Request;
use crate::protocol::store_error::StoreError;
use crate::util::clock::BootInstant;

/// A downgrade. Its command is repeated until the write hold would have ended.
#[derive(Debug)]
pub(super) struct Downgrading {
    /// The write hold, which has ended here.
    write: Holding,
    repeat_at: BootInstant,
}

impl Downgrading {
    /// Ends a write hold, and returns its downgrade; `None` if it was no longer valid.
    pub(super) fn of(write: &Holding, now: BootInstant) -> Option<Self> {
        write.hold().close(now)?;
        Some(Downgrading {
            write: write.clone(),
            repeat_at: now,
        })
    }

    fn valid_until(&self) -> BootInstant {
        self.write.hold().last_safe_until()
    }

    pub(super) fn next_due(&self) -> BootInstant {
        self.repeat_at.min(self.valid_until())
    }

    pub(super) fn action(&mut self, request: &Request, now: BootInstant) -> Option<Action> {
        if now < self.repeat_at {
            return None;
        }
        let command_timeout = request.timing().command_timeout();
        let timeout = command_timeout.min(self.valid_until().since(now));
        self.repeat_at = now + command_timeout;
        let token = self.write.hold().token;
        Some(Action::Downgrade { token, timeout })
    }

    pub(super) fn repeat_now(&mut self, now: BootInstant) {
        self.repeat_at = now;
    }

    /// Returns the read hold, or `None` if its proof came too late.
    pub(super) fn finish(
        &self,
        request: &Request,
        proof: Proof,
        now: BootInstant,
    ) -> Option<Holding> {
        let write = Some(&self.write);
        Holding::proven(request, proof, GrantOrigin::FREE, write, now)
    }

    pub(super) fn note_failure(&mut self, error: &StoreError) {
        self.write.note_failure(error);
    }

    /// Returns how the hold ended, if no reply arrived while the write hold would have been valid.
    pub(super) fn check_end(&self, now: BootInstant) -> Option<HoldEnd> {
        self.write
            .check_end(now)
            .filter(|_| now >= self.valid_until())
    }
}
