//! I16: a live waiter keeps its place.
//!
//! Others remove from a queue whom they take for dead. Of a client that nothing has happened to for a while,
//! nor to the server, nobody may think so. (Who did not answer a grant in time has lost its places.)

use std::collections::HashMap;

use crate::check::evidence::{Finding, Id, Violation};
use crate::check::owners::Owners;
use crate::check::run::{Key, Run, SECOND};
use crate::check::spans::Span;
use crate::check::truth::{Client, End, Truth};
use crate::history::Nanos;

/// So long after a fault a client has connected again and subscribed.
const RECOVERED: Nanos = 2 * SECOND;

pub(crate) fn check(run: &Run, truth: &Truth, owners: &Owners<'_>) -> Finding {
    let mut finding = Finding::new(Id::I16);
    let forfeits = forfeits(truth);
    for entry in truth.entries.iter().filter(|entry| !entry.open) {
        let Some((worker, generation)) = owners.process(truth, entry.owner) else {
            continue;
        };
        let at = entry.span.until;
        let before = Span::new(at.saturating_sub(RECOVERED), at);
        let process = &run.processes[&(worker, generation)];
        let lived = process.started < before.from && process.ended.is_none_or(|ended| ended > at);
        if !lived
            || !run.faults.connects(worker, entry.key, before)
            || truth.gaps_at(entry.key).touches(before)
        {
            continue;
        }
        finding.checked += 1;
        let forfeited = forfeits
            .get(&(entry.key, truth.client_of(entry.owner)))
            .is_some_and(|ends| ends.iter().any(|end| (before.from..=at).contains(end)));
        if entry.evicted && !forfeited {
            finding.violation(run, || Violation {
                key: run.keys.name(entry.key).to_owned(),
                span: entry.span,
                ops: Vec::new(),
                tokens: Vec::new(),
                what: format!(
                    "{} of worker {worker}.{generation}, alive and well, was removed from the queue by another",
                    truth.owners.name(entry.owner)
                ),
            });
        }
    }
    finding
}

/// When grants expired that their clients had not answered.
fn forfeits(truth: &Truth) -> HashMap<(Key, Client), Vec<Nanos>> {
    let mut forfeits: HashMap<_, Vec<Nanos>> = HashMap::new();
    for lock in &truth.locks {
        if lock.pushed && !lock.confirmed && lock.end == End::Expired {
            let of = (lock.key, truth.client_of(lock.owner));
            forfeits.entry(of).or_default().push(lock.span.until);
        }
    }
    forfeits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{History, Server, Story};

    /// Worker 1 is client `a`; at 5000 `by` removes its entry.
    fn found(by: &str, reset: Option<u64>, forfeited: bool) -> u64 {
        let mut history = History::default();
        history.call(Story::new(1, 1, "k", 10).held(11, 20, 100));
        if let Some(at) = reset {
            history.fault(at, at, "reset", Some(1), true);
        }
        let mut server = Server::default();
        server.take(10, "k", "a:1", 100, 1250);
        server.queue(15, "k", "a:2");
        if forfeited {
            server.queue(14, "k", "a:3");
            server.hand_over(3000, "k", "a:1", "a:3", 101, 1250);
            server.look(4990, "b");
        } else {
            server.release(20, "k", "a:1");
        }
        server.leave(5000, "k", "a:2");
        if let Some(crate::history::ServerEvent::Script { owner, .. }) = server
            .events
            .iter_mut()
            .rev()
            .find(|event| matches!(event, crate::history::ServerEvent::Script { .. }))
        {
            *owner = Some(by.into());
        }
        let (run, truth) = history.build_with(server);
        check(&run, &truth, &Owners::new(&run, &truth)).violations
    }

    #[test]
    fn nobody_removes_a_live_waiter() {
        assert_eq!(found("a:2", None, false), 0);
        assert_eq!(found("b:7", None, false), 1);
        // As a look, which names the client only.
        assert_eq!(found("b", None, false), 1);
    }

    #[test]
    fn who_was_cut_off_or_did_not_answer_may_be_removed() {
        assert_eq!(found("b:7", Some(4000), false), 0);
        assert_eq!(found("b:7", Some(2000), false), 1);
        assert_eq!(found("b:7", None, true), 0);
    }
}
