//! Every holder is notified of a loss in time.

use std::time::Duration;

use super::{Oracle, State};
use crate::__inside::simulation::faulty::{FaultyServer, Millis};
use crate::manager::core::held::HoldHandle;
use crate::protocol::timing::MAX_WATCHDOG_SLEEP;
use crate::store::memory::hooks::owner_text;
use crate::util::sync::lock;

/// Timers count whole milliseconds, and a timer may start within a millisecond.
const GRANULARITY: Duration = Duration::from_millis(2);

impl Oracle {
    /// Checks that a caller learned in time that its hold has ended.
    pub(crate) fn saw_end(&self, client: usize, hold: &HoldHandle) {
        let now = self.network.now();
        let mut state = lock(&self.state);
        state.trace.count("losses");
        let (key, owner) = (hold.lock_key(), hold.entry.owner);
        (state.trace).line(now, format_args!("c{client} lost {key} #{owner}"));
        let safe_until = hold.safe_until();
        let late = state.clients[client].clock.now().since(safe_until);
        // Only the first notice must be in time; a caller may check again at any later time.
        let first = state.notified.insert(owner);
        if first && safe_until.0 != 0 && late > GRANULARITY && !state.is_disturbed(client, now) {
            let text =
                format_args!("c{client} is notified {late:?} too late of the loss of #{owner}");
            state.trace.violated(now, text);
        }
    }

    /// Checks that the server no longer has a hold whose caller learned that it is gone.
    pub(crate) fn check_gone(&self, server: &FaultyServer, client: usize, hold: &HoldHandle) {
        let mut state = lock(&self.state);
        let owner = hold.entry.owner;
        let me = owner_text(&state.clients[client].id, owner);
        let there = server.snapshot(hold.lock_key());
        if let Some(left) = there.left(&me, hold.fencing_token()) {
            let text = format_args!("the hold of c{client} #{owner} is not gone, for {left:?}");
            state.trace.violated(self.network.now(), text);
        }
    }
}

impl State {
    /// Returns true if a client could not know better: killed, stopped, or with timers that slept.
    pub(super) fn is_disturbed(&self, client: usize, now: Millis) -> bool {
        let host = &self.clients[client].host;
        let within = |when: Option<Millis>, millis| when.is_some_and(|when| now <= when + millis);
        let tick = u64::try_from(MAX_WATCHDOG_SLEEP.as_millis()).unwrap();
        host.is_killed()
            || host.stopped_until().is_some()
            || within(host.went_on(), 2)
            || within(self.slept, tick + 2)
    }

    pub(super) fn check_losses(&mut self, now: Millis) {
        let late: Vec<_> = (self.holds.iter())
            .filter(|(client, hold)| {
                let time = self.clients[*client].clock.now();
                hold.hold
                    .safe_until()
                    .is_some_and(|safe_until| time.since(safe_until) > GRANULARITY)
                    && !self.is_disturbed(*client, now)
            })
            .map(|(client, hold)| (*client, hold.entry.owner))
            .collect();
        for (client, owner) in late {
            let text = format_args!("c{client} is not notified of the loss of #{owner}");
            self.trace.violated(now, text);
        }
    }
}
