//! I2: no update through the fence is lost.
//!
//! The resource recorded its accesses in its own order. Each accepted fenced write of a register is the
//! previous value plus one, each accepted element makes a set larger by one, each job is accepted at most
//! once. What the registers without a fence lost is counted: it shows what the fence is for.

use std::collections::{HashMap, HashSet};

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::run::{OpId, Run};
use crate::check::spans::Span;
use crate::history::ResourceEvent;

/// What went wrong at the resource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wrong {
    pub(crate) at: u64,
    pub(crate) key: String,
    pub(crate) op: OpId,
    pub(crate) token: u64,
    pub(crate) what: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) fenced_writes: u64,
    pub(crate) unfenced_writes: u64,
    pub(crate) lost_fenced: u64,
    pub(crate) lost_unfenced: u64,
    /// Refused writes, elements and jobs.
    pub(crate) stale_writes: u64,
    pub(crate) stale_reads: u64,
    pub(crate) elements: u64,
    pub(crate) jobs: u64,
}

/// Follows the accesses, in the resource's order.
#[derive(Debug, Default)]
pub(crate) struct Resource {
    pub(crate) counts: Counts,
    pub(crate) wrong: Vec<Wrong>,
    registers: HashMap<(String, bool), u64>,
    tokens: HashMap<String, u64>,
    sets: HashMap<String, (HashSet<u64>, u64)>,
    jobs: HashSet<(String, u64)>,
}

impl Resource {
    pub(crate) fn push(&mut self, event: ResourceEvent) {
        match event {
            ResourceEvent::Access {
                at,
                key,
                fenced,
                write,
                worker,
                generation,
                op,
                token,
                value,
                accepted,
            } => {
                let op = OpId {
                    worker,
                    generation,
                    op,
                };
                if !accepted {
                    self.refused(write);
                    return;
                }
                if !write {
                    return;
                }
                let register = self.registers.entry((key.clone(), fenced)).or_default();
                let expected = *register + 1;
                *register = value;
                if fenced {
                    self.counts.fenced_writes += 1;
                    let highest = self.tokens.entry(key.clone()).or_default();
                    let stale = token < *highest;
                    *highest = token.max(*highest);
                    if value != expected {
                        self.counts.lost_fenced += 1;
                        let what = format!("an update was lost: {value} after {}", expected - 1);
                        self.wrong(at, key, op, token, what);
                    } else if stale {
                        let what = "a write with a stale token was accepted".to_owned();
                        self.wrong(at, key, op, token, what);
                    }
                } else {
                    self.counts.unfenced_writes += 1;
                    if value != expected {
                        self.counts.lost_unfenced += 1;
                    }
                }
            }
            ResourceEvent::Set {
                at,
                key,
                write,
                worker,
                generation,
                op,
                token,
                element,
                size,
                accepted,
            } => {
                let op = OpId {
                    worker,
                    generation,
                    op,
                };
                if !accepted {
                    self.refused(write);
                    return;
                }
                let (elements, last) = self.sets.entry(key.clone()).or_default();
                let mut what = None;
                if write {
                    self.counts.elements += 1;
                    if !elements.insert(element) {
                        what = Some(format!("element {element} was added twice"));
                    }
                    *last += 1;
                }
                if size != *last {
                    what = Some(format!("the set has {size} elements, not {last}"));
                    *last = size;
                }
                if let Some(what) = what {
                    self.counts.lost_fenced += 1;
                    self.wrong(at, key, op, token, what);
                }
            }
            ResourceEvent::Job {
                at,
                key,
                job,
                worker,
                generation,
                op,
                token,
                accepted,
            } => {
                if !accepted {
                    self.refused(true);
                    return;
                }
                self.counts.jobs += 1;
                if !self.jobs.insert((key.clone(), job)) {
                    let op = OpId {
                        worker,
                        generation,
                        op,
                    };
                    let what = format!("job {job} was accepted twice");
                    self.wrong(at, key, op, token, what);
                }
            }
        }
    }

    fn refused(&mut self, write: bool) {
        if write {
            self.counts.stale_writes += 1;
        } else {
            self.counts.stale_reads += 1;
        }
    }

    fn wrong(&mut self, at: u64, key: String, op: OpId, token: u64, what: String) {
        self.wrong.push(Wrong {
            at,
            key,
            op,
            token,
            what,
        });
    }
}

pub(crate) fn check(run: &Run, resource: &Resource) -> Finding {
    let mut finding = Finding::new(Id::I2);
    let counts = resource.counts;
    finding.checked = counts.fenced_writes + counts.elements + counts.jobs;
    finding.note = format!(
        "{} unfenced updates lost, {} stale writes refused",
        counts.lost_unfenced, counts.stale_writes
    );
    for wrong in &resource.wrong {
        finding.violation(run, || Violation {
            key: wrong.key.clone(),
            span: Span::new(wrong.at, wrong.at),
            ops: vec![wrong.op],
            tokens: vec![wrong.token],
            what: wrong.what.clone(),
        });
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(fenced: bool, token: u64, value: u64, accepted: bool) -> ResourceEvent {
        ResourceEvent::Access {
            at: 1,
            key: "k".into(),
            fenced,
            write: true,
            worker: 1,
            generation: 0,
            op: value,
            token,
            value,
            accepted,
        }
    }

    fn element(element: u64, size: u64) -> ResourceEvent {
        ResourceEvent::Set {
            at: 1,
            key: "k".into(),
            write: element != 0,
            worker: 1,
            generation: 0,
            op: 1,
            token: 1,
            element,
            size,
            accepted: true,
        }
    }

    fn job(job: u64, accepted: bool) -> ResourceEvent {
        ResourceEvent::Job {
            at: 1,
            key: "k".into(),
            job,
            worker: 1,
            generation: 0,
            op: 1,
            token: 1,
            accepted,
        }
    }

    fn found(events: Vec<ResourceEvent>) -> (usize, Counts) {
        let mut resource = Resource::default();
        for event in events {
            resource.push(event);
        }
        let finding = check(&Run::default(), &resource);
        assert_eq!(finding.violations, resource.wrong.len() as u64);
        (resource.wrong.len(), resource.counts)
    }

    #[test]
    fn one_after_the_other() {
        let (wrong, counts) = found(vec![
            write(true, 1, 1, true),
            write(false, 1, 1, true),
            write(true, 1, 2, false),
            write(true, 2, 2, true),
            element(7, 1),
            element(0, 1),
            element(8, 2),
            job(1, true),
            job(1, false),
            job(2, true),
        ]);
        assert_eq!(wrong, 0);
        assert_eq!((counts.fenced_writes, counts.stale_writes), (2, 2));
        assert_eq!((counts.elements, counts.jobs), (2, 2));
    }

    #[test]
    fn a_lost_update() {
        let (wrong, counts) = found(vec![write(true, 1, 1, true), write(true, 2, 1, true)]);
        assert_eq!((wrong, counts.lost_fenced), (1, 1));
    }

    #[test]
    fn a_stale_token() {
        let (wrong, _) = found(vec![write(true, 2, 1, true), write(true, 1, 2, true)]);
        assert_eq!(wrong, 1);
    }

    #[test]
    fn without_a_fence_it_is_counted() {
        let (wrong, counts) = found(vec![write(false, 1, 1, true), write(false, 2, 1, true)]);
        assert_eq!((wrong, counts.lost_unfenced), (0, 1));
    }

    #[test]
    fn a_lost_element_and_one_that_came_twice() {
        assert_eq!(found(vec![element(7, 1), element(8, 1)]).0, 1);
        assert_eq!(found(vec![element(7, 1), element(0, 0)]).0, 1);
        assert_eq!(found(vec![element(7, 1), element(7, 2)]).0, 1);
    }

    #[test]
    fn a_job_that_was_done_twice() {
        assert_eq!(found(vec![job(1, true), job(2, true), job(1, true)]).0, 1);
    }
}
