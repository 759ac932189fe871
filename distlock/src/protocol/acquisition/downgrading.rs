//! The stage between a write hold and the read hold that replaces it.

use crate::fencing::FencingToken;
use crate::loss::LossReason;
use crate::protocol::acquisition::holding::Holding;
use crate::protocol::messages::Proof;
use crate::protocol::outcome::{Action, HoldEnd};
use crate::protocol::request::Request;
use crate::protocol::rules::Rules;
use crate::protocol::store_error::StoreError;
use crate::util::clock::BootInstant;

/// A downgrade. Its command is repeated until the write hold would have ended.
#[derive(Debug)]
pub(super) struct Downgrading {
    /// The token of the write hold.
    token: FencingToken,
    since: BootInstant,
    limit: Option<BootInstant>,
    valid_until: BootInstant,
    repeat_at: BootInstant,
    last_error: Option<String>,
}

impl Downgrading {
    /// Ends a write hold, and returns its downgrade; `None` if it was no longer valid.
    pub(super) fn of(held: &Holding, now: BootInstant) -> Option<Self> {
        Some(Downgrading {
            token: held.token(),
            since: held.since(),
            limit: held.limit(),
            valid_until: held.safe_deadline().close(now)?,
            repeat_at: now,
            last_error: None,
        })
    }

    pub(super) fn valid_until(&self) -> BootInstant {
        self.valid_until
    }

    pub(super) fn next_due(&self) -> BootInstant {
        self.repeat_at.min(self.valid_until)
    }

    pub(super) fn action(&mut self, request: &Request, now: BootInstant) -> Option<Action> {
        if now < self.repeat_at {
            return None;
        }
        let command_timeout = request.timing.command_timeout();
        let timeout = command_timeout.min(self.valid_until.since(now));
        self.repeat_at = now + command_timeout;
        let token = self.token;
        Some(Action::Downgrade { token, timeout })
    }

    pub(super) fn repeat_now(&mut self, now: BootInstant) {
        self.repeat_at = now;
    }

    /// Returns the read hold, or `None` if its proof came too late.
    pub(super) fn finish(
        &self,
        request: &Request,
        rules: Rules,
        proof: Proof,
        now: BootInstant,
    ) -> Option<Holding> {
        let mut held = Holding::proven(request, rules, proof, now)?;
        held.continue_from(self.since, self.limit);
        Some(held)
    }

    pub(super) fn note_failure(&mut self, error: &StoreError) {
        self.last_error = Some(error.to_string());
    }

    /// Returns how the hold ends if no reply arrives in time.
    pub(super) fn end(&self, now: BootInstant) -> HoldEnd {
        HoldEnd::Lost(LossReason::NotRenewed {
            last_error: self.last_error.clone(),
            overdue: now.since(self.valid_until),
        })
    }
}
