//! Notices that no fault of the servers begins any more.

use std::time::Duration;

use crate::plan::{Kind, Planned};

/// How long faults of the servers may be postponed before the run ends.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Since when, after the beginning of the chaos, faults have been postponed, and which one was first.
///
/// Slots move next to other faults, so each of the two is observed by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stall {
    moves: Option<(Duration, Kind)>,
    others: Option<(Duration, Kind)>,
}

impl Stall {
    fn of(&mut self, kind: Kind) -> &mut Option<(Duration, Kind)> {
        match kind {
            Kind::SlotsMove => &mut self.moves,
            _ => &mut self.others,
        }
    }

    /// Records that a fault cannot begin now.
    pub(super) fn postponed(&mut self, fault: &Planned, elapsed: Duration) {
        self.of(fault.kind).get_or_insert((elapsed, fault.kind));
    }

    /// Records that a fault begins.
    pub(super) fn began(&mut self, fault: &Planned) {
        if fault.worker.is_none() {
            *self.of(fault.kind) = None;
        }
    }

    /// Returns what stopped, and since when, if faults have been postponed for too long.
    pub(super) fn describe(&self, elapsed: Duration) -> Option<String> {
        let postponed = [self.others, self.moves].into_iter().flatten();
        let (since, kind) = postponed.min_by_key(|(since, _)| *since)?;
        (elapsed > since + TIMEOUT).then(|| {
            format!(
                "faults of the servers stopped {:.1} s after the chaos began: `{}` has been impossible for {:?}, \
                 because the servers have not recovered from the fault before",
                since.as_secs_f64(),
                kind.name(),
                TIMEOUT
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(kind: Kind, worker: Option<u32>) -> Planned {
        Planned {
            at: Duration::ZERO,
            length: Duration::ZERO,
            worker,
            node: None,
            kind,
            by: Duration::ZERO,
            flag: false,
            choice: 0,
        }
    }

    #[test]
    fn a_run_stalls_when_faults_of_the_servers_are_postponed_for_a_minute() {
        let second = Duration::from_secs;
        let failover = fault(Kind::FailoverKill, None);
        let mut stall = Stall::default();
        assert_eq!(stall.describe(second(600)), None);
        stall.postponed(&failover, second(40));
        stall.postponed(&failover, second(70));
        assert_eq!(stall.describe(second(100)), None);
        // Neither faults of workers nor slots that move are what stopped.
        stall.began(&fault(Kind::ClientKill, Some(1)));
        stall.began(&fault(Kind::SlotsMove, None));
        let stalled = stall.describe(second(101)).unwrap();
        assert!(stalled.contains("stopped 40.0 s after"), "{stalled}");
        assert!(stalled.contains("`failover_kill`"), "{stalled}");
        stall.began(&failover);
        assert_eq!(stall.describe(second(101)), None);
        stall.postponed(&fault(Kind::SlotsMove, None), second(110));
        assert!(stall.describe(second(171)).is_some());
    }
}
