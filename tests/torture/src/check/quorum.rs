//! What the invariants mean where several servers vote.
//!
//! What workers believed, and what the resource saw, is judged as ever (I1 to I4, I6 to I8, I10, I13), but a fault is an
//! excuse only while it leaves too few nodes (`views`). What a server does is judged at each node, which knows of no other:
//! it touches nobody else's lock (I5), nothing stays behind (I9), votes go to the lowest ticket that waits there (I12),
//! a vote that nobody asks for again is short (I14), and live waiters keep their places (I16). Who believes has the lock at
//! a quorum (I11), for as long as that (I15).
//!
//! Left out, for they have no meaning here: that a lock whose token nobody believed in is gone soon (I9), for who waits
//! keeps a vote as long as that takes; that a client that did not answer a grant is not served again (I14), for another
//! call of it may have a lower ticket; that a loss is told before the server lets go (I6), for none of them does so alone;
//! and an order of calls over all nodes (I12): the lowest ticket is served first when a quorum of nodes grants, and one
//! that comes later to a node may be lower.

use std::collections::HashSet;

use crate::check::evidence::Finding;
use crate::check::figures::{self, Figures};
use crate::check::owners::{self, Owners, Processes};
use crate::check::resource::{self, Resource};
use crate::check::run::{MILLI, Run, SECOND, grace};
use crate::check::spans::Span;
use crate::check::truth::{End, LockSpan, Truth};
use crate::check::{
    calm, deadlines, fifo, grants, holds, leaks, liveness, loss, orphans, outcomes, overlaps,
    ownership, places, tokens, views,
};
use crate::history::Nanos;

/// A hold has met a node's absence if it was believed in from before that, and for so long into it.
const AWAY: Nanos = 50 * MILLI;

/// How many nodes vote in a run; zero where one server decides.
pub(super) fn nodes(topology: &str) -> u32 {
    let count = topology.strip_prefix("quorum");
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// `truths`: of each node.
pub(super) fn judge(
    run: &mut Run,
    truths: &[Truth],
    resource: &Resource,
) -> (Vec<Finding>, Figures) {
    let count = u32::try_from(truths.len()).unwrap_or(0);
    // As all clients have agreed.
    let lease = run.longest_lease().max(SECOND);
    let seen = views::of_quorum(&run.faults, count, lease + grace(lease));
    let faults = std::mem::replace(&mut run.faults, seen);
    let clients = owners::at_nodes(run, truths);
    let mut findings = over_all(run, truths, &clients, resource);
    let figures = figures(run, truths, resource);
    for (node, (truth, clients)) in (0..).zip(truths.iter().zip(clients)) {
        run.faults = views::of_node(&faults, node);
        for found in at_node(run, truth, &Owners::of(run, clients)) {
            add(&mut findings, found);
        }
    }
    findings.sort_by_key(|finding| finding.id);
    run.faults = views::of_quorum(&faults, count, lease + grace(lease));
    (findings, figures)
}

fn over_all(
    run: &Run,
    truths: &[Truth],
    clients: &[Processes],
    resource: &Resource,
) -> Vec<Finding> {
    let nothing = Truth::default();
    vec![
        overlaps::check(run),
        resource::check(run, resource),
        tokens::check(run, &nothing),
        outcomes::check(run),
        loss::check(run, &nothing),
        deadlines::check(run),
        liveness::check(run, &nothing),
        orphans::left(run),
        leaks::check(run),
        holds::held_by_quorum(run, truths, clients),
        calm::check(run),
        holds::proven_by_quorum(run, truths, clients),
    ]
}

fn at_node(run: &Run, truth: &Truth, owners: &Owners<'_>) -> Vec<Finding> {
    vec![
        ownership::check(run, truth),
        orphans::at_node(run, truth, owners),
        fifo::check(run, truth, owners),
        grants::unconfirmed(run, truth),
        places::check(run, truth, owners),
    ]
}

/// Puts together what was found of one invariant.
fn add(findings: &mut Vec<Finding>, more: Finding) {
    let known = findings.iter_mut().find(|finding| finding.id == more.id);
    match known {
        Some(known) => known.join(more),
        None => findings.push(more),
    }
}

fn figures(run: &Run, truths: &[Truth], resource: &Resource) -> Figures {
    let nothing = Truth::default();
    let mut figures = figures::figures(run, &nothing, &Owners::new(run, &nothing), resource);
    figures.locks_by_shard = truths
        .iter()
        .map(|truth| truth.taken.values().sum())
        .collect();
    for truth in truths {
        figures.grants += truth.grants;
        figures.server_scripts += truth.scripts;
        figures.monitor_gaps += truth.gap_count;
    }
    let votes: Vec<_> = truths.iter().map(Votes::of).collect();
    figures.grants_never_confirmed = votes.iter().map(|votes| votes.wasted).sum();
    let pushed = run.ops.iter().filter(|op| {
        op.token().is_some_and(|token| {
            let mut each = truths.iter().zip(&votes);
            each.any(|(truth, votes)| {
                let lock = truth.lock(op.key, token);
                lock.is_some_and(|lock| votes.has_pushed(lock))
            })
        })
    });
    figures.acquired_through_push = pushed.count() as u64;
    figures.pushed_percent = percent(figures.acquired_through_push, figures.acquired);
    let seconds = run.span().length() as f64 / 1e9;
    figures.hand_overs_per_second = figures.acquired_through_push as f64 / seconds.max(1e-9);
    let faults = run.faults.list.iter();
    for fault in faults.filter(|fault| fault.worker.is_none() && fault.node.is_some()) {
        figures.losses += u64::from(fault.forgets());
        figures.freezes += u64::from(fault.kind == "node_stop");
        let is_away = fault.forgets() || fault.kind == "node_stop";
        // Long enough to notice.
        let from = fault.span.from;
        let span = Span::new(from, from + AWAY.min(fault.span.length()));
        let through = run.ops.iter().filter(|op| {
            let belief = op.belief();
            is_away && belief.is_some_and(|belief| belief.covers(span))
        });
        figures.held_through_losses += through.count() as u64;
    }
    figures
}

fn percent(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}

/// What a node gave, and told unasked.
#[derive(Debug, Default)]
struct Votes {
    pushed: HashSet<(u32, u32)>,
    /// What nobody answered.
    wasted: u64,
}

impl Votes {
    fn of(truth: &Truth) -> Votes {
        let of = |lock: &LockSpan| (lock.key, lock.owner);
        let pushed = truth.locks.iter().filter(|lock| lock.pushed);
        let pushed: HashSet<_> = pushed.map(of).collect();
        let is_unanswered =
            |lock: &&LockSpan| lock.pushed && !lock.confirmed && lock.end == End::Expired;
        let held = truth
            .locks
            .iter()
            .filter(|lock| !lock.vote && !is_unanswered(lock));
        let held: HashSet<_> = held.map(of).collect();
        let wasted = pushed.difference(&held).count() as u64;
        Votes { pushed, wasted }
    }

    fn has_pushed(&self, lock: &LockSpan) -> bool {
        self.pushed.contains(&(lock.key, lock.owner))
    }
}
