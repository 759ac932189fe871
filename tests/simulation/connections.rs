//! Invariants of acquires and releases on any connection.

use std::collections::{BTreeMap, BTreeSet};

use super::trace::Trace;
use crate::__inside::simulation::faulty::{Answer, Applied, Fault, GrantReceiver, Millis, Op};
use crate::protocol::messages::OwnerId;

/// Upper limit of the rest of a handshake and a following acquire.
const AT_ONCE: Millis = 100;

/// Upper limit of the duration of a fault.
const LONGEST_FAULT: Millis = 1_000;

#[derive(Debug, Default)]
pub(super) struct Connections {
    /// Count and last time of each client's listens; `acquired`: the count at an owner's last
    /// acquire.
    epochs: BTreeMap<usize, (u64, Millis)>,
    acquired: BTreeMap<(usize, OwnerId), u64>,
    /// Owners with an applied release.
    released: BTreeSet<(usize, OwnerId)>,
    /// Owners with an acquire applied after their release, and when. They must be released again.
    revived: BTreeMap<(usize, OwnerId), Millis>,
    /// Faults that may keep a client, or all clients, from releasing, and their times.
    hindered: Vec<(Option<usize>, Millis)>,
}

impl Connections {
    /// Records that a client listens on a new connection.
    pub(super) fn began(&mut self, now: Millis, client: usize) {
        let epoch = self.epochs.entry(client).or_default();
        *epoch = (epoch.0 + 1, now);
    }

    pub(super) fn record_fault(&mut self, now: Millis, client: Option<usize>, fault: Fault) {
        if fault.hinders() {
            // A clock that was set back delays what is due by it for as long again.
            let lasts = if fault == Fault::StepBack {
                LONGEST_FAULT
            } else {
                0
            };
            self.hindered.push((client, now + lasts));
        }
    }

    pub(super) fn applied(&mut self, now: Millis, applied: &Applied<'_>, trace: &mut Trace) {
        let client = applied.client;
        match (applied.op, applied.answer) {
            (Op::Release { owner, .. }, Answer::Released { .. }) => {
                self.released.insert((client, *owner));
                if self.revived.remove(&(client, *owner)).is_some() {
                    trace.count("released again");
                }
            }
            (Op::Acquire { .. } | Op::AcquireAll { .. }, answer) => {
                for owner in applied.op.owners() {
                    self.check_acquire(now, applied, owner, trace);
                    let left_state = match answer {
                        Answer::Acquired(reply) => reply.left_state(),
                        answer => matches!(answer, Answer::AllAcquired(Some(_))),
                    };
                    // An acquire of an old connection may be applied late, but must be cancelled.
                    if left_state && self.released.contains(&(client, owner)) {
                        trace.count("acquires: after the release");
                        self.revived.insert((client, owner), now);
                    }
                }
            }
            _ => {}
        }
    }

    /// Checks that an acquire comes from a client that listens, and counts repeated acquires.
    fn check_acquire(
        &mut self,
        now: Millis,
        applied: &Applied<'_>,
        owner: OwnerId,
        trace: &mut Trace,
    ) {
        let client = applied.client;
        if applied.grant_receiver == GrantReceiver::OtherConnection {
            trace.count("acquires: on a runtime connection");
        }
        if applied.grant_receiver == GrantReceiver::None {
            let text = format!("c{client} #{owner} acquires on a connection that does not listen");
            trace.violated(now, format_args!("{text}"));
        }
        let (epoch, since) = self.epochs.get(&client).copied().unwrap_or_default();
        let before = self.acquired.insert((client, owner), epoch);
        if before.is_some_and(|before| before < epoch) && now <= since + AT_ONCE {
            trace.count("acquires: again on a new connection");
        }
    }

    /// Checks that every owner in `revived` was released, unless faults hindered its client.
    pub(super) fn end(&mut self, now: Millis, trace: &mut Trace) {
        for ((client, owner), when) in std::mem::take(&mut self.revived) {
            let since = when.saturating_sub(LONGEST_FAULT);
            let hindered = (self.hindered.iter()).any(|(affected, at)| {
                affected.is_none_or(|affected| affected == client) && *at >= since
            });
            if hindered {
                trace.count("excused: not released again");
            } else {
                let text = format!(
                    "c{client} #{owner} acquired after its release, and that was not cancelled"
                );
                trace.violated(now, format_args!("{text}"));
            }
        }
    }
}
