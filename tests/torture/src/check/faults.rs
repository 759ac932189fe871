//! Which faults were in force when.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::run::{Key, Names};
use crate::check::spans::{Span, Spans};
use crate::history::{Nanos, SupervisorEvent};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) number: u64,
    pub(crate) kind: String,
    /// `None`: it concerns everybody.
    pub(crate) worker: Option<u32>,
    /// The node of a quorum that it concerns, or the worker's link to it.
    pub(crate) node: Option<u32>,
    pub(crate) lossless: bool,
    /// The keys that it concerns, if not all.
    pub(crate) keys: Option<Vec<Key>>,
    pub(crate) span: Span,
    pub(crate) detail: String,
    /// Locks needed the replica's word, so what happened to that one concerned them.
    pub(crate) acknowledged: bool,
}

impl Fault {
    /// Whether a process was stopped by it.
    pub(crate) fn stops(&self) -> bool {
        self.worker.is_some() && (self.kind.contains("stop") || self.kind.contains("pause"))
    }

    /// Whether its timers stood still as well.
    fn suspends(&self) -> bool {
        self.worker.is_some() && self.kind.contains("suspend")
    }

    /// Whether no holder may lose its lock by it.
    pub(crate) fn harmless_to_holders(&self) -> bool {
        let kinds = [
            "oom",
            "script_flush",
            "drop_pushes",
            "sentinels_stop",
            "slots_move",
            "shortage",
        ];
        kinds.iter().any(|kind| self.kind.contains(kind)) || self.passes_unnoticed()
    }

    /// Whether a server forgot all that it had.
    pub(crate) fn forgets(&self) -> bool {
        let kinds = ["flushall", "restart_lossy", "node_loss", "node_rewind"];
        kinds.contains(&self.kind.as_str())
    }

    /// Whether only the replica did not hear the master.
    pub(crate) fn is_of_replica(&self) -> bool {
        self.kind.starts_with("replica_")
    }

    /// Whether it happened to a replica whose word nobody needed.
    fn passes_unnoticed(&self) -> bool {
        self.is_of_replica() && !self.acknowledged
    }

    /// Whether releases and cancels get through, and are applied, as if nothing had happened.
    fn lets_release(&self) -> bool {
        let kinds = [
            "take_time",
            "foreign_fence",
            "oom",
            "script_flush",
            "flushall",
        ];
        kinds.contains(&self.kind.as_str()) || self.passes_unnoticed()
    }

    /// Whether requests arrive, and only what comes back does not.
    fn spoils_replies(&self) -> bool {
        let kinds = [
            "swallow_reply",
            "delay_replies",
            "hold_replies",
            "drop_to_client",
        ];
        self.worker.is_some() && kinds.contains(&self.kind.as_str())
    }

    /// Whether another server took the master's place, with what had been copied to it.
    pub(crate) fn is_failover(&self) -> bool {
        self.kind.starts_with("failover_")
    }

    /// Whether slots of a cluster went from one node to another.
    pub(crate) fn is_move(&self) -> bool {
        self.kind == "slots_move"
    }

    /// Whether the server executes nothing, so that nothing expires.
    fn freezes(&self) -> bool {
        let kinds = ["server_stop", "restart", "busy", "pause_writes", "node_"];
        self.worker.is_none() && kinds.iter().any(|kind| self.kind.starts_with(kind))
    }

    /// Whether live clients may be taken for dead: they are cut off, a clock tells their time, or a release
    /// that was denied half way left the mark of its grant.
    fn cuts_off(&self) -> bool {
        let kinds = [
            "oom",
            "script_flush",
            "foreign_fence",
            "busy",
            "sentinels_stop",
        ];
        self.worker.is_none() && !kinds.contains(&self.kind.as_str()) && !self.is_of_replica()
    }
}

/// The faults of the server that has a key.
#[derive(Debug, Default)]
pub(crate) struct Site {
    /// Those by which it may lose a lock.
    lossy: Spans,
    /// All, whoever works.
    pub(crate) all: Spans,
    /// Those by which a holder may lose its lock.
    harmful: Spans,
    /// Those that delay what is undone.
    delaying: Spans,
    /// Those by which it stands still.
    pub(crate) freezing: Spans,
    /// Those that cut clients off.
    cutting: Spans,
    /// Those by which another one takes its place: meanwhile more than one may take itself for the master.
    pub(crate) replacing: Spans,
}

impl Site {
    fn new(list: &[Fault], concerns: impl Fn(&Fault) -> bool) -> Site {
        let spans = |wanted: &dyn Fn(&Fault) -> bool| {
            let wanted = list.iter().filter(|f| concerns(f) && wanted(f));
            Spans::of(wanted.map(|f| f.span))
        };
        Site {
            lossy: spans(&|f| !f.lossless),
            all: spans(&|f| f.worker.is_none()),
            harmful: spans(&|f| f.worker.is_none() && !f.harmless_to_holders()),
            delaying: spans(&|f| f.worker.is_none() && !f.lets_release()),
            freezing: spans(&Fault::freezes),
            cutting: spans(&Fault::cuts_off),
            replacing: spans(&Fault::is_failover),
        }
    }

    /// Whether a lock may be lost because of what happened up to `memory` before.
    pub(crate) fn lossy_within(&self, span: Span, memory: Nanos) -> bool {
        self.lossy.touches(span.widened(memory, 0))
    }
}

/// All faults of a run, and the stretches of time that invariants ask for.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// As they were carried out.
    pub(crate) list: Vec<Fault>,
    /// As they concern what is judged: the same, unless it is a lock over several servers, or one of these.
    effects: Vec<Fault>,
    /// Of those keys that faults name.
    sites: BTreeMap<Key, Site>,
    /// Of all others.
    everywhere: Site,
    workers: BTreeMap<u32, Spans>,
    stops: BTreeMap<u32, Spans>,
    suspends: BTreeMap<u32, Spans>,
    none: Spans,
}

impl Faults {
    pub(crate) fn new(list: Vec<Fault>) -> Faults {
        Faults::seen_as(list.clone(), list)
    }

    /// What was carried out, and what that comes to.
    pub(crate) fn seen_as(list: Vec<Fault>, effects: Vec<Fault>) -> Faults {
        let spans = |wanted: &dyn Fn(&Fault) -> bool| {
            Spans::of(effects.iter().filter(|f| wanted(f)).map(|f| f.span))
        };
        let mut workers = BTreeMap::new();
        let mut stops = BTreeMap::new();
        let mut suspends = BTreeMap::new();
        for fault in &effects {
            if let Some(worker) = fault.worker {
                workers
                    .entry(worker)
                    .or_insert_with(|| spans(&|f| f.worker == Some(worker)));
                stops
                    .entry(worker)
                    .or_insert_with(|| spans(&|f| f.worker == Some(worker) && f.stops()));
                suspends
                    .entry(worker)
                    .or_insert_with(|| spans(&|f| f.worker == Some(worker) && f.suspends()));
            }
        }
        let named: BTreeSet<Key> = effects
            .iter()
            .flat_map(|f| &f.keys)
            .flatten()
            .copied()
            .collect();
        let site = |key: Key| {
            let concerns = |f: &Fault| f.keys.as_ref().is_none_or(|keys| keys.contains(&key));
            (key, Site::new(&effects, concerns))
        };
        Faults {
            sites: named.into_iter().map(site).collect(),
            everywhere: Site::new(&effects, |f| f.keys.is_none()),
            workers,
            stops,
            suspends,
            none: Spans::default(),
            list,
            effects,
        }
    }

    /// Faults as the supervisor recorded them: without a `Healed` they are over at once.
    pub(crate) fn of(events: &[SupervisorEvent], names: &mut Names) -> Faults {
        let mut list: Vec<Fault> = Vec::new();
        let mut by_number = BTreeMap::new();
        let mut acknowledged = false;
        for event in events {
            match event {
                SupervisorEvent::Run { topology, .. } => acknowledged = topology == "replicas",
                SupervisorEvent::Fault {
                    at,
                    number,
                    kind,
                    worker,
                    node,
                    lossless,
                    keys,
                    detail,
                } => {
                    by_number.insert(*number, list.len());
                    list.push(Fault {
                        number: *number,
                        kind: kind.clone(),
                        worker: *worker,
                        node: *node,
                        lossless: *lossless,
                        keys: keys.as_ref().map(|keys| {
                            let numbers = keys.iter().map(|key| names.number(key));
                            numbers.collect()
                        }),
                        span: Span::new(*at, *at),
                        detail: detail.clone(),
                        acknowledged,
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
        Faults::new(list)
    }

    /// What happened to the server that has a key.
    pub(crate) fn at(&self, key: Key) -> &Site {
        self.sites.get(&key).unwrap_or(&self.everywhere)
    }

    /// When any fault of this worker alone was in force.
    pub(crate) fn of_worker(&self, worker: u32) -> &Spans {
        self.workers.get(&worker).unwrap_or(&self.none)
    }

    /// When this worker was stopped.
    pub(crate) fn stops_of(&self, worker: u32) -> &Spans {
        self.stops.get(&worker).unwrap_or(&self.none)
    }

    /// When this worker was killed, if it was in this time. Until its process is gone, a busy machine may take seconds.
    pub(crate) fn killed(&self, worker: u32, span: Span) -> Option<Nanos> {
        let of_worker = self.effects.iter().filter(|f| f.worker == Some(worker));
        let kills = of_worker
            .filter(|f| f.kind == "client_kill")
            .map(|f| f.span.from);
        kills
            .filter(|at| (span.from..=span.until).contains(at))
            .min()
    }

    pub(crate) fn suspends_of(&self, worker: u32) -> &Spans {
        self.suspends.get(&worker).unwrap_or(&self.none)
    }

    /// Whether neither this worker nor the server of this key was faulted then.
    pub(crate) fn spares(&self, worker: u32, key: Key, span: Span) -> bool {
        !self.of_worker(worker).touches(span) && !self.at(key).all.touches(span)
    }

    /// Whether nothing delayed then what this worker undid.
    pub(crate) fn lets_release(&self, worker: u32, key: Key, span: Span) -> bool {
        !self.of_worker(worker).touches(span) && !self.at(key).delaying.touches(span)
    }

    /// Whether all that delayed it were replies that did not come: it connects again, and undoes.
    pub(crate) fn lets_requests_through(&self, worker: u32, key: Key, span: Span) -> bool {
        let mut touching = self.effects.iter().filter(|f| {
            f.worker == Some(worker) && f.span.from <= span.until && f.span.until >= span.from
        });
        touching.all(Fault::spoils_replies) && !self.at(key).delaying.touches(span)
    }

    /// Whether nobody who wants this key had a reason then to take this worker for dead.
    pub(crate) fn connects(&self, worker: u32, key: Key, span: Span) -> bool {
        !self.of_worker(worker).touches(span) && !self.at(key).cutting.touches(span)
    }

    /// Whether this worker may lose this key by what was in force then.
    pub(crate) fn harms(&self, worker: u32, key: Key, span: Span) -> bool {
        self.at(key).harmful.touches(span)
            || self.effects.iter().any(|f| {
                f.worker == Some(worker)
                    && !f.harmless_to_holders()
                    && f.span.from <= span.until
                    && f.span.until >= span.from
            })
    }

    /// Those in force then, in words: where it is about one key, without those of others.
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
                let mut text = format!("#{} {}", f.number, f.kind);
                if let Some(worker) = f.worker {
                    text += &format!(" of worker {worker}");
                }
                if let Some(node) = f.node {
                    text += &format!(" at node {node}");
                }
                text
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(at: Nanos, number: u64, kind: &str, worker: Option<u32>) -> SupervisorEvent {
        SupervisorEvent::Fault {
            at,
            number,
            kind: kind.into(),
            worker,
            node: None,
            lossless: kind != "flush_all",
            keys: None,
            detail: String::new(),
        }
    }

    fn of(events: &[SupervisorEvent]) -> Faults {
        Faults::of(events, &mut Names::default())
    }

    #[test]
    fn a_fault_of_one_server_is_nothing_to_the_keys_of_others() {
        let mut event = fault(10, 1, "failover_kill", None);
        if let SupervisorEvent::Fault { keys, lossless, .. } = &mut event {
            (*keys, *lossless) = (Some(vec!["there".into()]), false);
        }
        let mut names = Names::default();
        let there = names.number("there");
        let elsewhere = names.number("elsewhere");
        let faults = Faults::of(&[event, fault(50, 2, "script_flush", None)], &mut names);
        let then = Span::new(10, 10);
        for (key, concerned) in [(there, true), (elsewhere, false)] {
            assert_eq!(faults.at(key).lossy_within(then, 0), concerned);
            assert_eq!(faults.at(key).replacing.touches(then), concerned);
            assert_eq!(faults.harms(1, key, then), concerned);
            assert_eq!(faults.spares(1, key, then), !concerned);
            assert_eq!(faults.connects(1, key, then), !concerned);
            assert_eq!(faults.lets_release(1, key, then), !concerned);
            assert_eq!(faults.named(then, Some(key)).len(), usize::from(concerned));
            // One of all servers concerns all keys.
            assert!(!faults.spares(1, key, Span::new(50, 50)));
        }
        assert_eq!(faults.named(then, None).len(), 1);
    }

    #[test]
    fn a_slot_that_moves_excuses_delay_and_order_and_no_loss() {
        let faults = of(&[fault(10, 1, "slots_move", None)]);
        let then = Span::new(10, 10);
        assert!(!faults.harms(1, 0, then) && !faults.at(0).lossy_within(then, 0));
        assert!(!faults.connects(1, 0, then) && !faults.lets_release(1, 0, then));
        assert!(faults.at(0).all.touches(then) && !faults.at(0).freezing.touches(then));
        assert!(faults.list[0].is_move() && !faults.at(0).replacing.touches(then));
    }

    #[test]
    fn replicas_and_sentinels_are_nothing_to_a_holder_and_a_failover_is() {
        for (kind, harms, connects, releases) in [
            ("replica_stop", false, true, true),
            ("sentinels_stop", false, true, false),
            ("failover_command", true, false, false),
        ] {
            let faults = of(&[fault(10, 1, kind, None)]);
            let then = Span::new(10, 10);
            assert_eq!(faults.harms(1, 0, then), harms, "{kind}");
            assert_eq!(faults.connects(1, 0, then), connects, "{kind}");
            assert_eq!(faults.lets_release(1, 0, then), releases, "{kind}");
            assert_eq!(faults.list[0].is_failover(), harms, "{kind}");
        }
    }

    #[test]
    fn a_replica_whose_word_is_needed_is_something_to_a_holder() {
        let run = |topology: &str| SupervisorEvent::Run {
            at: 1,
            seed: 1,
            seconds: 60,
            profile: "all".into(),
            topology: topology.into(),
            workers: 1,
            keys: 1,
            sabotage: None,
            redis_version: String::new(),
            commit: String::new(),
        };
        for (topology, harms) in [("sentinel", false), ("cluster", false), ("replicas", true)] {
            for kind in ["replica_stop", "replica_cut", "replica_kill"] {
                let faults = of(&[run(topology), fault(10, 1, kind, None)]);
                let then = Span::new(10, 10);
                assert_eq!(faults.harms(1, 0, then), harms, "{kind}");
                assert_eq!(faults.lets_release(1, 0, then), !harms, "{kind}");
                assert!(faults.connects(1, 0, then), "{kind}");
            }
        }
    }

    #[test]
    fn what_is_in_force_when() {
        let faults = of(&[
            fault(10, 1, "worker_stop", Some(3)),
            fault(15, 2, "flush_all", None),
            SupervisorEvent::Healed { at: 20, number: 1 },
            fault(30, 3, "script_flush", None),
        ]);
        assert!(faults.stops_of(3).touches(Span::new(18, 19)));
        assert!(!faults.stops_of(2).touches(Span::new(18, 19)));
        assert!(faults.at(0).all.touches(Span::new(15, 15)));
        assert!(!faults.at(0).all.touches(Span::new(16, 29)));
        assert!(faults.at(0).lossy_within(Span::new(18, 19), 3));
        assert!(!faults.at(0).lossy_within(Span::new(18, 19), 2));
        assert!(!faults.harms(3, 0, Span::new(25, 40)));
        assert!(faults.harms(3, 0, Span::new(19, 40)));
        assert!(!faults.harms(2, 0, Span::new(19, 40)));
        assert!(!faults.spares(3, 0, Span::new(19, 30)));
        assert!(faults.spares(2, 0, Span::new(19, 29)));
        assert!(!faults.lets_release(2, 0, Span::new(15, 15)));
        assert_eq!(
            faults.named(Span::new(14, 16), None),
            ["#1 worker_stop of worker 3", "#2 flush_all"]
        );
    }
}
