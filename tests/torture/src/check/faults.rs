//! Which faults were in force when.

use std::collections::BTreeMap;

use crate::check::spans::{Span, Spans};
use crate::history::{Nanos, SupervisorEvent};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) number: u64,
    pub(crate) kind: String,
    /// `None`: it concerns everybody.
    pub(crate) worker: Option<u32>,
    pub(crate) lossless: bool,
    pub(crate) span: Span,
    pub(crate) detail: String,
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
            "replica_stop",
            "sentinels_stop",
        ];
        kinds.iter().any(|kind| self.kind.contains(kind))
    }

    /// Whether releases and cancels get through, and are applied, as if nothing had happened.
    fn lets_release(&self) -> bool {
        let kinds = [
            "take_time",
            "foreign_fence",
            "oom",
            "script_flush",
            "flushall",
            "replica_stop",
        ];
        kinds.contains(&self.kind.as_str())
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

    /// Whether the server executes nothing, so that nothing expires.
    fn freezes(&self) -> bool {
        let kinds = ["server_stop", "restart", "busy", "pause_writes"];
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
            "replica_stop",
            "sentinels_stop",
        ];
        self.worker.is_none() && !kinds.contains(&self.kind.as_str())
    }
}

/// All faults of a run, and the stretches of time that invariants ask for.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) list: Vec<Fault>,
    /// Those by which the server may lose a lock.
    pub(crate) lossy: Spans,
    /// Those that concern everybody.
    pub(crate) server: Spans,
    /// Those that concern everybody, and by which a holder may lose its lock.
    harmful: Spans,
    /// Those that concern everybody, and delay what is undone.
    delaying: Spans,
    /// Those by which the server stands still.
    pub(crate) freezing: Spans,
    /// Those that concern everybody, and cut clients off.
    cutting: Spans,
    workers: BTreeMap<u32, Spans>,
    stops: BTreeMap<u32, Spans>,
    suspends: BTreeMap<u32, Spans>,
    none: Spans,
}

impl Faults {
    pub(crate) fn new(list: Vec<Fault>) -> Faults {
        let spans = |wanted: &dyn Fn(&Fault) -> bool| {
            Spans::of(list.iter().filter(|f| wanted(f)).map(|f| f.span))
        };
        let mut workers = BTreeMap::new();
        let mut stops = BTreeMap::new();
        let mut suspends = BTreeMap::new();
        for fault in &list {
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
        Faults {
            lossy: spans(&|f| !f.lossless),
            server: spans(&|f| f.worker.is_none()),
            harmful: spans(&|f| f.worker.is_none() && !f.harmless_to_holders()),
            delaying: spans(&|f| f.worker.is_none() && !f.lets_release()),
            freezing: spans(&Fault::freezes),
            cutting: spans(&Fault::cuts_off),
            workers,
            stops,
            suspends,
            none: Spans::default(),
            list,
        }
    }

    /// Faults as the supervisor recorded them: without a `Healed` they are over at once.
    pub(crate) fn of(events: &[SupervisorEvent]) -> Faults {
        let mut list: Vec<Fault> = Vec::new();
        let mut by_number = BTreeMap::new();
        for event in events {
            match event {
                SupervisorEvent::Fault {
                    at,
                    number,
                    kind,
                    worker,
                    lossless,
                    detail,
                } => {
                    by_number.insert(*number, list.len());
                    list.push(Fault {
                        number: *number,
                        kind: kind.clone(),
                        worker: *worker,
                        lossless: *lossless,
                        span: Span::new(*at, *at),
                        detail: detail.clone(),
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

    /// When any fault of this worker alone was in force.
    pub(crate) fn of_worker(&self, worker: u32) -> &Spans {
        self.workers.get(&worker).unwrap_or(&self.none)
    }

    /// When this worker was stopped.
    pub(crate) fn stops_of(&self, worker: u32) -> &Spans {
        self.stops.get(&worker).unwrap_or(&self.none)
    }

    pub(crate) fn suspends_of(&self, worker: u32) -> &Spans {
        self.suspends.get(&worker).unwrap_or(&self.none)
    }

    /// Whether neither this worker nor the server was faulted then.
    pub(crate) fn spares(&self, worker: u32, span: Span) -> bool {
        !self.of_worker(worker).touches(span) && !self.server.touches(span)
    }

    /// Whether nothing delayed then what this worker undid.
    pub(crate) fn lets_release(&self, worker: u32, span: Span) -> bool {
        !self.of_worker(worker).touches(span) && !self.delaying.touches(span)
    }

    /// Whether all that delayed it were replies that did not come: it connects again, and undoes.
    pub(crate) fn lets_requests_through(&self, worker: u32, span: Span) -> bool {
        let mut touching = self.list.iter().filter(|f| {
            f.worker == Some(worker) && f.span.from <= span.until && f.span.until >= span.from
        });
        touching.all(Fault::spoils_replies) && !self.delaying.touches(span)
    }

    /// Whether nobody had a reason then to take this worker for dead.
    pub(crate) fn connects(&self, worker: u32, span: Span) -> bool {
        !self.of_worker(worker).touches(span) && !self.cutting.touches(span)
    }

    /// Whether this worker may lose what it holds by what was in force then.
    pub(crate) fn harms(&self, worker: u32, span: Span) -> bool {
        self.harmful.touches(span)
            || self.list.iter().any(|f| {
                f.worker == Some(worker)
                    && !f.harmless_to_holders()
                    && f.span.from <= span.until
                    && f.span.until >= span.from
            })
    }

    /// Whether a lock may be lost because of what happened up to `memory` before.
    pub(crate) fn lossy_within(&self, span: Span, memory: Nanos) -> bool {
        self.lossy.touches(span.widened(memory, 0))
    }

    /// Those in force then, in words.
    pub(crate) fn named(&self, span: Span) -> Vec<String> {
        self.list
            .iter()
            .filter(|f| f.span.from <= span.until && f.span.until >= span.from)
            .map(|f| match f.worker {
                Some(worker) => format!("#{} {} of worker {worker}", f.number, f.kind),
                None => format!("#{} {}", f.number, f.kind),
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
            lossless: kind != "flush_all",
            detail: String::new(),
        }
    }

    #[test]
    fn replicas_and_sentinels_are_nothing_to_a_holder_and_a_failover_is() {
        for (kind, harms, connects, releases) in [
            ("replica_stop", false, true, true),
            ("sentinels_stop", false, true, false),
            ("failover_command", true, false, false),
        ] {
            let faults = Faults::of(&[fault(10, 1, kind, None)]);
            let then = Span::new(10, 10);
            assert_eq!(faults.harms(1, then), harms, "{kind}");
            assert_eq!(faults.connects(1, then), connects, "{kind}");
            assert_eq!(faults.lets_release(1, then), releases, "{kind}");
            assert_eq!(faults.list[0].is_failover(), harms, "{kind}");
        }
    }

    #[test]
    fn what_is_in_force_when() {
        let faults = Faults::of(&[
            fault(10, 1, "worker_stop", Some(3)),
            fault(15, 2, "flush_all", None),
            SupervisorEvent::Healed { at: 20, number: 1 },
            fault(30, 3, "script_flush", None),
        ]);
        assert!(faults.stops_of(3).touches(Span::new(18, 19)));
        assert!(!faults.stops_of(2).touches(Span::new(18, 19)));
        assert!(faults.server.touches(Span::new(15, 15)));
        assert!(!faults.server.touches(Span::new(16, 29)));
        assert!(faults.lossy_within(Span::new(18, 19), 3));
        assert!(!faults.lossy_within(Span::new(18, 19), 2));
        assert!(!faults.harms(3, Span::new(25, 40)));
        assert!(faults.harms(3, Span::new(19, 40)));
        assert!(!faults.harms(2, Span::new(19, 40)));
        assert!(!faults.spares(3, Span::new(19, 30)));
        assert!(faults.spares(2, Span::new(19, 29)));
        assert!(!faults.lets_release(2, Span::new(15, 15)));
        assert_eq!(
            faults.named(Span::new(14, 16)),
            ["#1 worker_stop of worker 3", "#2 flush_all"]
        );
    }
}
