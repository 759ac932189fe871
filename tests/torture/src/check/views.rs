//! The faults of a run over a quorum, as one node has them, and as they concern a lock.
//!
//! What happens to a minority of the nodes is no excuse for anybody: a fault counts while too many nodes are impaired at
//! once, by what happens to them or to a worker's links to them. A node that has forgotten something is impaired until it
//! votes again.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::faults::{Fault, Faults};
use crate::check::run::{MILLI, SECOND};
use crate::check::spans::{Span, Spans};
use crate::history::Nanos;

/// Until a node counts again to which nothing happens any more: clients connect, and repair what they hold.
const AFTERMATH: Nanos = SECOND + 500 * MILLI;

/// Too many nodes are impaired.
pub(crate) const OUTAGE: &str = "outage";
/// The same, but those that hold keep what they have.
pub(crate) const SHORTAGE: &str = "shortage";

/// What concerns one node: whoever is stopped, what happens to it, and to the links to it. It knows of no quorum, so what it
/// forgets is lost.
pub(crate) fn of_node(faults: &Faults, node: u32) -> Faults {
    let concerned = faults.list.iter();
    let concerned = concerned.filter(|fault| fault.node.is_none_or(|of| of == node));
    let effects = concerned.map(|fault| Fault {
        lossless: fault.lossless && !fault.forgets(),
        ..fault.clone()
    });
    Faults::seen_as(faults.list.clone(), effects.collect())
}

/// What concerns a lock that so many of so many nodes have to vote for. `quarantine`: of one that forgot.
pub(crate) fn of_quorum(faults: &Faults, nodes: u32, quarantine: Nanos) -> Faults {
    let spare = (nodes - 1) / 2;
    let impairs = |fault: &Fault| match fault.forgets() {
        true => fault.span.widened(0, quarantine + AFTERMATH),
        false => fault.span.widened(0, AFTERMATH),
    };
    // What is impaired for a worker, or for all of them.
    let impaired = |worker: Option<u32>, wanted: &dyn Fn(&Fault) -> bool| {
        let mut each: BTreeMap<u32, Vec<Span>> = BTreeMap::new();
        for fault in faults.list.iter().filter(|fault| wanted(fault)) {
            if let Some(node) = fault.node
                && (fault.worker.is_none() || fault.worker == worker)
            {
                each.entry(node).or_default().push(impairs(fault));
            }
        }
        let each: Vec<_> = each.into_values().map(Spans::of).collect();
        at_once(&each, spare + 1)
    };
    let workers: BTreeSet<_> = faults
        .list
        .iter()
        .filter_map(|fault| fault.worker)
        .collect();
    let whom = std::iter::once(None).chain(workers.into_iter().map(Some));
    let mut effects: Vec<_> = faults
        .list
        .iter()
        .filter(|fault| fault.node.is_none())
        .cloned()
        .collect();
    for worker in whom {
        let harmful = impaired(worker, &|fault| !fault.harmless_to_holders());
        let all = impaired(worker, &|_| true).minus(&harmful);
        for (kind, spans) in [(OUTAGE, harmful), (SHORTAGE, all)] {
            let of_kind = spans.iter().map(|span| Fault {
                number: 0,
                kind: kind.to_owned(),
                worker,
                node: None,
                lossless: true,
                keys: None,
                span,
                detail: String::new(),
                acknowledged: false,
            });
            effects.extend(of_kind);
        }
    }
    // What is forgotten beyond what is promised excuses what it did to a lock.
    let forgotten = faults.list.iter().filter(|fault| !fault.lossless);
    effects.extend(forgotten.cloned());
    Faults::seen_as(faults.list.clone(), effects)
}

/// When at least so many of them last at once.
pub(crate) fn at_once(each: &[Spans], count: u32) -> Spans {
    let spans = each.iter().flat_map(Spans::iter);
    // Of the same moment, beginnings come first.
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

    fn lock(history: &History, nodes: u32) -> Faults {
        of_quorum(&history.build().0.faults, nodes, 3 * SECOND)
    }

    fn at(millis: u64) -> Span {
        Span::new(millis * MILLI, millis * MILLI)
    }

    #[test]
    fn so_many_at_once() {
        let spans = |of: &[(u64, u64)]| Spans::of(of.iter().map(|(a, b)| Span::new(*a, *b)));
        let each = [
            spans(&[(1, 5), (10, 20)]),
            spans(&[(4, 12)]),
            spans(&[(11, 11)]),
        ];
        let found = |count| at_once(&each, count).iter().collect::<Vec<_>>();
        assert_eq!(found(1), [Span::new(1, 20)]);
        assert_eq!(found(2), [Span::new(4, 5), Span::new(10, 12)]);
        assert_eq!(found(3), [Span::new(11, 11)]);
    }

    #[test]
    fn one_node_of_three_excuses_nothing_and_two_do() {
        let mut history = History::default();
        history.fault_at(0, 100, 5_000, "node_stop", None);
        assert!(!lock(&history, 3).harms(1, 0, at(200)));
        history.fault_at(1, 200, 300, "black_hole", Some(1));
        let faults = lock(&history, 3);
        assert!(faults.harms(1, 0, at(250)) && !faults.spares(1, 0, at(250)));
        assert!(!faults.harms(2, 0, at(250)) && faults.spares(2, 0, at(250)));
        // The link's aftermath, and not more.
        assert!(faults.harms(1, 0, at(1_800)) && !faults.harms(1, 0, at(1_801)));
        assert!(!lock(&history, 5).harms(1, 0, at(250)));
    }

    #[test]
    fn a_node_that_has_forgotten_is_impaired_until_it_votes() {
        for (kind, harms) in [
            ("node_stop", false),
            ("node_loss", true),
            ("flushall", true),
        ] {
            let mut history = History::default();
            history.fault_at(0, 100, 200, kind, None);
            history.fault_at(1, 4_000, 4_100, "node_stop", None);
            assert_eq!(lock(&history, 3).harms(1, 0, at(4_050)), harms, "{kind}");
            // It does not excuse that another one has the lock.
            assert!(!lock(&history, 3).at(0).lossy_within(at(150), 0));
            assert_eq!(
                of_node(&history.build().0.faults, 0)
                    .at(0)
                    .lossy_within(at(150), 0),
                harms
            );
            assert!(
                !of_node(&history.build().0.faults, 1)
                    .at(0)
                    .lossy_within(at(150), 0)
            );
        }
    }

    #[test]
    fn who_only_gets_no_votes_loses_nothing() {
        let mut history = History::default();
        history.fault_at(0, 100, 200, "oom", None);
        history.fault_at(1, 100, 200, "node_stop", None);
        let faults = lock(&history, 3);
        assert!(!faults.harms(1, 0, at(150)) && !faults.spares(1, 0, at(150)));
    }

    #[test]
    fn a_node_has_its_own_faults_and_those_of_all_workers() {
        let mut history = History::default();
        history.fault_at(0, 100, 200, "node_stop", None);
        history.fault_at(1, 300, 400, "reset", Some(1));
        history.fault(500, 600, "client_stop", Some(1), true);
        let build = history.build().0.faults;
        let (here, there) = (of_node(&build, 0), of_node(&build, 1));
        assert!(here.at(0).freezing.touches(at(150)) && !there.at(0).freezing.touches(at(150)));
        assert!(here.spares(1, 0, at(350)) && !there.spares(1, 0, at(350)));
        assert!(!here.spares(1, 0, at(550)) && !there.spares(1, 0, at(550)));
    }
}
