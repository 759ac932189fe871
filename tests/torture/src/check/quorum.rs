//! The faults of a run with a quorum, as they affect a lock.
//!
//! A fault at a minority of the servers excuses nothing. Faults count while too many servers are
//! impaired at once, by their own faults or by faults on a worker's links to them. A server that
//! forgot is impaired until it grants again.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::faults::{Fault, Faults};
use crate::check::run::{MILLI, SECOND};
use crate::check::spans::{Span, Spans};
use crate::history::Nanos;
use crate::kind::Kind;

/// The time that a server stays impaired after its fault: clients reconnect and repair their holds.
const AFTERMATH: Nanos = SECOND + 500 * MILLI;

/// Returns the effects on a lock that needs a majority of `servers`. `quarantine` is the time that
/// a server which forgot does not grant.
pub(super) fn effects(faults: &Faults, servers: u32, quarantine: Nanos) -> Faults {
    let too_many = (servers - 1) / 2 + 1;
    // Returns when too many servers are impaired for one worker, or for all workers (`None`).
    let impaired = |worker: Option<u32>, wanted: &dyn Fn(&Fault) -> bool| {
        let mut each: BTreeMap<u32, Vec<Span>> = BTreeMap::new();
        for fault in faults.list.iter().filter(|fault| wanted(fault)) {
            if let Some(node) = fault.node
                && (fault.worker.is_none() || fault.worker == worker)
            {
                let forgotten = if fault.kind.forgets() { quarantine } else { 0 };
                let span = fault.span.widened(0, forgotten + AFTERMATH);
                each.entry(node).or_default().push(span);
            }
        }
        let each: Vec<_> = each.into_values().map(Spans::of).collect();
        at_once(&each, too_many)
    };
    let of_workers = faults.list.iter().filter_map(|fault| fault.worker);
    let workers: BTreeSet<_> = of_workers.map(Some).chain([None]).collect();
    let of_no_server = |fault: &&Fault| fault.node.is_none();
    let mut effects: Vec<_> = faults.list.iter().filter(of_no_server).cloned().collect();
    for worker in workers {
        let harmful = impaired(worker, &|fault| !fault.spares_holders);
        let all = impaired(worker, &|_| true).minus(&harmful);
        for (kind, spans) in [(Kind::Outage, harmful), (Kind::Shortage, all)] {
            effects.extend(spans.iter().map(|span| Fault {
                number: 0,
                kind,
                worker,
                node: None,
                lossless: true,
                keys: None,
                span,
                spares_holders: kind.spares_holders(false),
            }));
        }
    }
    Faults::new(faults.list.clone(), &effects)
}

/// Returns when at least `count` of the spans overlap.
fn at_once(each: &[Spans], count: u32) -> Spans {
    let spans = each.iter().flat_map(Spans::iter);
    // At the same moment, beginnings sort before ends.
    let mut steps: Vec<_> = spans
        .flat_map(|span| [(span.from, 0, 1_i64), (span.until, 1, -1)])
        .collect();
    steps.sort_unstable();
    let (mut lasting, mut since, mut found) = (0, None, Vec::new());
    for (at, _, step) in steps {
        lasting += step;
        match since {
            None if lasting >= i64::from(count) => since = Some(at),
            Some(from) if lasting < i64::from(count) => {
                since = None;
                found.push(Span::new(from, at));
            }
            _ => {}
        }
    }
    Spans::of(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::History;

    /// The lease is one second, so a server that forgot grants again after 1.25 s.
    fn faults(history: &History, servers: u32) -> Faults {
        effects(&history.build().faults, servers, 1_250 * MILLI)
    }

    fn at(millis: u64) -> Span {
        Span::new(millis * MILLI, millis * MILLI)
    }

    #[test]
    fn one_server_of_three_excuses_nothing_and_two_do() {
        let mut history = History::default();
        history.fault_at(0, 100, 5_000, Kind::ServerStop, None);
        assert!(!faults(&history, 3).harms(1, 0, at(200)));
        history.fault_at(1, 200, 300, Kind::BlackHole, Some(1));
        let three = faults(&history, 3);
        assert!(three.harms(1, 0, at(250)) && !three.harms(2, 0, at(250)));
        // The link's aftermath ends here.
        assert!(three.harms(1, 0, at(1_800)) && !three.harms(1, 0, at(1_801)));
        assert!(!faults(&history, 5).harms(1, 0, at(250)));
    }

    #[test]
    fn a_server_that_has_forgotten_is_impaired_until_it_grants() {
        for (kind, harms) in [
            (Kind::ServerStop, false),
            (Kind::RestartLossy, true),
            (Kind::FlushAll, true),
        ] {
            let mut history = History::default();
            history.fault_at(0, 100, 200, kind, None);
            history.fault_at(1, 2_000, 2_100, Kind::ServerStop, None);
            let faults = faults(&history, 3);
            assert_eq!(faults.harms(1, 0, at(2_050)), harms, "{kind:?}");
            // The fault does not excuse that another worker acquires the lock.
            assert!(!faults.at(0).lossy_within(at(150), 0));
        }
    }

    #[test]
    fn a_holder_loses_nothing_by_servers_that_only_refuse_to_grant() {
        let mut history = History::default();
        history.fault_at(0, 100, 200, Kind::OutOfMemory, None);
        history.fault_at(1, 100, 200, Kind::ServerStop, None);
        let faults = faults(&history, 3);
        assert!(!faults.harms(1, 0, at(150)) && faults.at(0).all.touches(at(150)));
    }
}
