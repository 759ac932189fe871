//! The faults of a run, and when each was in force.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::run::{Key, Names};
use crate::check::spans::{Span, Spans};
use crate::history::{Nanos, SupervisorEvent};
use crate::kind::Kind;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    /// The worker concerned, or `None` for all workers.
    pub(crate) worker: Option<u32>,
    /// The server of a quorum concerned, or the server at the other end of the worker's link.
    pub(crate) node: Option<u32>,
    pub(crate) lossless: bool,
    /// The keys concerned, if not all.
    pub(crate) keys: Option<Vec<Key>>,
    pub(crate) span: Span,
    /// Set if no holder may lose its lock by the fault.
    pub(crate) spares_holders: bool,
}

/// The times of faults at the server that has a key.
#[derive(Debug, Default)]
pub(crate) struct Site {
    /// All faults.
    pub(crate) all: Spans,
    /// Faults that may make the server lose a lock.
    lossy: Spans,
    /// Faults that may cost a holder its lock.
    harmful: Spans,
    /// Faults in which a replica replaces the server; meanwhile both may act as the primary.
    pub(crate) replacing: Spans,
    /// Faults that step the server's clock.
    pub(crate) steps: Spans,
}

impl Site {
    fn new(effects: &[Fault], concerns: impl Fn(&Fault) -> bool) -> Site {
        let spans = |wanted: &dyn Fn(&Fault) -> bool| {
            let wanted = effects.iter().filter(|f| concerns(f) && wanted(f));
            Spans::of(wanted.map(|f| f.span))
        };
        Site {
            all: spans(&|f| f.worker.is_none()),
            lossy: spans(&|f| !f.lossless),
            harmful: spans(&|f| f.worker.is_none() && !f.spares_holders),
            replacing: spans(&|f| f.kind.is_failover()),
            steps: spans(&|f| f.kind == Kind::ClockStep),
        }
    }

    /// Returns true if a lock may be lost by a fault in `span`, or up to `memory` before it.
    pub(crate) fn lossy_within(&self, span: Span, memory: Nanos) -> bool {
        self.lossy.touches(span.widened(memory, 0))
    }
}

/// All faults of a run, and the time spans that invariants need.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// As carried out.
    pub(crate) list: Vec<Fault>,
    /// The servers of the keys that faults name.
    sites: BTreeMap<Key, Site>,
    /// The servers of all other keys.
    everywhere: Site,
    workers: BTreeMap<u32, OfWorker>,
    none: OfWorker,
}

/// The faults of one worker.
#[derive(Debug, Default)]
struct OfWorker {
    all: Spans,
    harmful: Spans,
    stops: Spans,
    suspends: Spans,
    kills: Vec<Nanos>,
}

impl OfWorker {
    fn new(effects: &[Fault], worker: u32) -> OfWorker {
        let own = || effects.iter().filter(|f| f.worker == Some(worker));
        let spans = |wanted: &dyn Fn(&Fault) -> bool| {
            Spans::of(own().filter(|f| wanted(f)).map(|f| f.span))
        };
        OfWorker {
            all: spans(&|_| true),
            harmful: spans(&|f| !f.spares_holders),
            stops: spans(&|f| f.kind.stops_worker()),
            suspends: spans(&|f| f.kind == Kind::ClientSuspend),
            kills: own()
                .filter(|f| f.kind == Kind::ClientKill)
                .map(|f| f.span.from)
                .collect(),
        }
    }
}

impl Faults {
    /// Creates the faults of a run from the faults carried out and their effects on a lock. The two
    /// differ only for a lock over several servers.
    pub(crate) fn new(list: Vec<Fault>, effects: &[Fault]) -> Faults {
        let workers: BTreeSet<_> = effects.iter().filter_map(|f| f.worker).collect();
        let keys: BTreeSet<Key> = effects
            .iter()
            .flat_map(|f| &f.keys)
            .flatten()
            .copied()
            .collect();
        let site = |key: Key| {
            let concerns = |f: &Fault| f.keys.as_ref().is_none_or(|keys| keys.contains(&key));
            (key, Site::new(effects, concerns))
        };
        let of_worker = |worker| (worker, OfWorker::new(effects, worker));
        Faults {
            sites: keys.into_iter().map(site).collect(),
            everywhere: Site::new(effects, |f| f.keys.is_none()),
            workers: workers.into_iter().map(of_worker).collect(),
            none: OfWorker::default(),
            list,
        }
    }

    /// Creates the faults that the supervisor recorded. A fault without `Healed` ends at once.
    pub(crate) fn of(events: &[SupervisorEvent], names: &mut Names) -> Faults {
        let mut list: Vec<Fault> = Vec::new();
        let mut by_number = BTreeMap::new();
        let mut acknowledged = false;
        for event in events {
            match event {
                SupervisorEvent::Run { header, .. } => {
                    acknowledged = header.topology == "replicas";
                }
                SupervisorEvent::Fault(fault) => {
                    by_number.insert(fault.number, list.len());
                    let numbered = |keys: &Vec<String>| {
                        let numbers = keys.iter().map(|key| names.number(key));
                        numbers.collect()
                    };
                    list.push(Fault {
                        number: fault.number,
                        kind: fault.kind,
                        worker: fault.worker,
                        node: fault.node,
                        lossless: fault.lossless,
                        keys: fault.keys.as_ref().map(numbered),
                        span: Span::new(fault.at, fault.at),
                        spares_holders: fault.kind.spares_holders(acknowledged),
                    });
                }
                SupervisorEvent::Healed { at, number } => {
                    if let Some(&index) = by_number.get(number) {
                        list[index].span.until = *at;
                    }
                }
                _ => {}
            }
        }
        Faults::new(list.clone(), &list)
    }

    /// Returns the faults of the server that has a key.
    pub(crate) fn at(&self, key: Key) -> &Site {
        self.sites.get(&key).unwrap_or(&self.everywhere)
    }

    fn worker(&self, worker: u32) -> &OfWorker {
        self.workers.get(&worker).unwrap_or(&self.none)
    }

    /// Returns when a fault of this worker alone was in force.
    pub(crate) fn of_worker(&self, worker: u32) -> &Spans {
        &self.worker(worker).all
    }

    /// Returns when this worker was stopped.
    pub(crate) fn stops_of(&self, worker: u32) -> &Spans {
        &self.worker(worker).stops
    }

    /// Returns when this worker's timers stood still as well.
    pub(crate) fn suspends_of(&self, worker: u32) -> &Spans {
        &self.worker(worker).suspends
    }

    /// Returns when this worker was killed, if in `span`. Its process may exit seconds later.
    pub(crate) fn killed(&self, worker: u32, span: Span) -> Option<Nanos> {
        let kills = self.worker(worker).kills.iter().copied();
        kills
            .filter(|at| (span.from..=span.until).contains(at))
            .min()
    }

    /// Returns true if a fault in force during `span` may cost this worker this key.
    pub(crate) fn harms(&self, worker: u32, key: Key, span: Span) -> bool {
        self.at(key).harmful.touches(span) || self.worker(worker).harmful.touches(span)
    }

    /// Returns the names of the faults in force during `span`, with a key only those concerning it.
    pub(crate) fn named(&self, span: Span, key: Option<Key>) -> Vec<String> {
        let concerns = |fault: &&Fault| match (&fault.keys, key) {
            (Some(keys), Some(key)) => keys.contains(&key),
            _ => true,
        };
        self.list
            .iter()
            .filter(|f| f.span.from <= span.until && f.span.until >= span.from)
            .filter(concerns)
            .map(|f| {
                let mut text = format!("#{} {:?}", f.number, f.kind);
                if let Some(worker) = f.worker {
                    text += &format!(" of worker {worker}");
                }
                if let Some(node) = f.node {
                    text += &format!(" at server {node}");
                }
                text
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::run::MILLI;
    use crate::check::testing::History;

    fn at(millis: u64) -> Span {
        Span::new(millis * MILLI, millis * MILLI)
    }

    #[test]
    fn a_fault_of_one_server_does_not_affect_keys_of_others() {
        let mut history = History::default();
        history.fault(10, 10, Kind::FailoverKill, None, false);
        history.with_fault(|fault| fault.keys = Some(vec!["there".into()]));
        history.fault(50, 50, Kind::ScriptFlush, None, true);
        let mut run = history.build();
        let there = run.keys.number("there");
        let elsewhere = run.keys.number("elsewhere");
        for (key, concerned) in [(there, true), (elsewhere, false)] {
            let faults = &run.faults;
            assert_eq!(faults.at(key).lossy_within(at(10), 0), concerned);
            assert_eq!(faults.at(key).replacing.touches(at(10)), concerned);
            assert_eq!(faults.harms(1, key, at(10)), concerned);
            let named = faults.named(at(10), Some(key));
            assert_eq!(named.len(), usize::from(concerned));
            // A fault of all servers concerns all keys.
            assert!(faults.at(key).all.touches(at(50)));
        }
        assert_eq!(run.faults.named(at(10), None), ["#1 FailoverKill"]);
    }

    #[test]
    fn faults_that_cost_a_holder_its_lock_are_classified() {
        for (topology, kind, harms) in [
            ("sentinel", Kind::ReplicaStop, false),
            ("cluster", Kind::ReplicaStop, false),
            ("replicas", Kind::ReplicaStop, true),
            ("replicas", Kind::ReplicaKill, true),
            ("sentinel", Kind::SentinelsStop, false),
            ("sentinel", Kind::FailoverCommand, true),
            ("cluster", Kind::SlotsMove, false),
            ("standalone", Kind::OutOfMemory, false),
            ("standalone", Kind::ServerStop, true),
        ] {
            let mut history = History::of(topology);
            history.fault(10, 10, kind, None, true);
            let run = history.build();
            assert_eq!(run.faults.harms(1, 0, at(10)), harms, "{topology} {kind:?}");
            assert!(run.faults.at(0).all.touches(at(10)));
        }
    }
}
