//! Releases. A release is sent once if it is certain to be last, and again if an acquire may still
//! be applied after it.

use std::time::Duration;

use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Owner, ReleaseReply};
use crate::store::command::Release;
use crate::store::redis::conn::session::Session;
use crate::store::redis::node::Node;
use crate::store::redis::node::lane::LaneName;
use crate::store::redis::node::unanswered::Unanswered;
use crate::store::redis::node::way::Way;
use crate::store::redis::wire::call::ScriptCall;
use crate::store::redis::wire::commands::ReleaseEffect;
use crate::store::redis::wire::errors;

impl Node {
    /// Releases all that an owner has here, after its acquires. Where a runtime connection left one
    /// unanswered, it also sends the release there, or kills that connection (R2).
    pub(crate) async fn release(
        &self,
        owner: Owner,
        release: &impl ScriptCall<Reply = ReleaseEffect>,
        within: Duration,
    ) -> Result<ReleaseReply, Trouble> {
        let home = self.home()?;
        let mut unanswered = self.unanswered.get(owner).unwrap_or_default();
        if !self.shared.rules.follow_lane {
            unanswered.lanes.clear();
        }
        let mut was_held = false;
        let mut may_come = unanswered
            .epoch
            .is_some_and(|epoch| epoch != home.session.epoch && home.session.predecessor_lives);
        for name in &unanswered.lanes {
            let mut is_followed = false;
            if let Some(lane) = self.lanes.find(name.number) {
                let way = Way {
                    lane: Some(lane),
                    ..Way::over(home.session.clone())
                };
                match self.release_by(&way, release, within).await {
                    Ok(held) => {
                        was_held |= held;
                        is_followed = true;
                    }
                    // It may have been applied, so a lock that is now missing proves nothing.
                    Err(trouble) => was_held |= !trouble.unsent,
                }
            }
            if !is_followed {
                self.lanes.give_up(name.number);
                may_come |= !self.kill(name, &home.session, within).await?;
            }
        }
        was_held |= self.release_by(&home, release, within).await?;
        self.unanswered.forget(owner);
        self.polls.forget(owner);
        let again_after = may_come.then(|| self.until_refused(&unanswered, within));
        Ok(ReleaseReply {
            was_held,
            again_after,
        })
    }

    /// Returns the delay after which a release certainly follows the unanswered acquires.
    fn until_refused(&self, unanswered: &Unanswered, within: Duration) -> Duration {
        let now = self.shared.server_time.upper_bound(self.shared.clock.now());
        Duration::from_micros(unanswered.apply_by.saturating_sub(now)) + within
    }

    /// Returns true if an acquire of this owner was never answered.
    pub(crate) fn owes_answer(&self, owner: Owner) -> bool {
        self.unanswered.get(owner).is_some()
    }

    /// Forgets an acquire that was never answered here, and is released on another node. Returns
    /// the delay before the next release, because the acquire may still be applied.
    pub(crate) fn forget_ask(&self, owner: Owner, within: Duration) -> Option<Duration> {
        let unanswered = self.unanswered.get(owner)?;
        self.unanswered.forget(owner);
        Some(self.until_refused(&unanswered, within))
    }

    /// Releases an owner that has no unanswered acquire. Returns `None` if it has one, because the
    /// I/O thread then has to release it.
    pub(crate) async fn release_answered(
        &self,
        way: &Way,
        release: &Release<'_>,
        within: Duration,
    ) -> Option<Result<ReleaseReply, Trouble>> {
        if self.unanswered.get(release.owner).is_some() {
            return None;
        }
        let released = self.release_by(way, release, within).await;
        Some(released.map(|was_held| ReleaseReply {
            was_held,
            again_after: None,
        }))
    }

    /// Ensures that nothing more of a runtime connection is applied. Returns `false` if it may be.
    async fn kill(&self, lane: &LaneName, by: &Session, within: Duration) -> Result<bool, Trouble> {
        match tokio::time::timeout(within, lane.kill(by)).await {
            Ok(killed) => killed,
            Err(_) => {
                self.commands.check_liveness(within);
                Err(Trouble::timed_out(within))
            }
        }
    }

    /// Sends a release, and returns true if the owner had the lock.
    async fn release_by(
        &self,
        way: &Way,
        release: &impl ScriptCall<Reply = ReleaseEffect>,
        within: Duration,
    ) -> Result<bool, Trouble> {
        let give_up = self.shared.clock.now() + within;
        let mut was_held = false;
        loop {
            let removed = match self.run_on(way, release, within).await {
                // The slot has moved. The rest is left to the next client that checks the queue.
                Err(trouble) if was_held && errors::is_redirect(&trouble) => return Ok(true),
                removed => removed?,
            };
            was_held |= removed.was_held;
            // More dead waiters than one call removes before it reaches a live one. After the
            // timeout they are left to the next client that checks the queue.
            if !removed.has_more_dead || self.shared.clock.now() >= give_up {
                return Ok(was_held);
            }
        }
    }
}
