//! Whose a lock on the server is: through its token to the call, through its client to the process.

use std::collections::HashMap;

use crate::check::run::{Key, Op, Run};
use crate::check::truth::{Client, LockSpan, Owner, Truth};

/// A worker and its generation.
pub(crate) type Process = (u32, u32);

/// Of which process each client is, as one server numbers them.
pub(crate) type Processes = HashMap<Client, Process>;

#[derive(Debug)]
pub(crate) struct Owners<'a> {
    ops: HashMap<(Key, u64), &'a Op>,
    processes: Processes,
}

impl<'a> Owners<'a> {
    pub(crate) fn new(run: &'a Run, truth: &Truth) -> Owners<'a> {
        let mut processes = Processes::new();
        for op in &run.ops {
            let lock = op.token().and_then(|token| truth.lock(op.key, token));
            if let Some(lock) = lock {
                let process = (op.id.worker, op.id.generation);
                processes
                    .entry(truth.client_of(lock.owner))
                    .or_insert(process);
            }
        }
        Owners::of(run, processes)
    }

    pub(crate) fn of(run: &'a Run, processes: Processes) -> Owners<'a> {
        let mut ops = HashMap::new();
        for op in &run.ops {
            if let Some(token) = op.token() {
                ops.entry((op.key, token)).or_insert(op);
            }
        }
        Owners { ops, processes }
    }

    /// The call that believed in this token.
    pub(crate) fn op(&self, key: Key, token: u64) -> Option<&'a Op> {
        self.ops.get(&(key, token)).copied()
    }

    /// The worker and generation of an owner, if any call of its client was ever believed.
    pub(crate) fn process(&self, truth: &Truth, owner: Owner) -> Option<Process> {
        self.processes.get(&truth.client_of(owner)).copied()
    }
}

/// Of which process each client is, at each node of a quorum. Two nodes may give the next token to two clients, of which at most
/// one has it at most nodes: that one believes in it.
pub(crate) fn at_nodes(run: &Run, truths: &[Truth]) -> Vec<Processes> {
    let mut had: HashMap<(Key, u64), Vec<&str>> = HashMap::new();
    for truth in truths {
        for lock in truth.locks.iter().filter(|lock| !lock.vote && !lock.kept) {
            let clients = had.entry((lock.key, lock.token)).or_default();
            clients.push(name(truth, lock));
        }
    }
    let mut processes = HashMap::new();
    for op in &run.ops {
        let clients = op.token().and_then(|token| had.get(&(op.key, token)));
        let Some(clients) = clients else { continue };
        let times = |client: &&str| clients.iter().filter(|other| *other == client).count();
        let is_most = |client: &&str| times(client) > truths.len() / 2;
        if let Some(client) = clients.iter().copied().find(is_most) {
            processes
                .entry(client)
                .or_insert((op.id.worker, op.id.generation));
        }
    }
    let of_node = |truth: &Truth| {
        let process = |lock: &LockSpan| {
            let process = processes.get(name(truth, lock))?;
            Some((truth.client_of(lock.owner), *process))
        };
        truth.locks.iter().filter_map(process).collect()
    };
    truths.iter().map(of_node).collect()
}

/// What the server calls a lock's client.
fn name<'t>(truth: &'t Truth, lock: &LockSpan) -> &'t str {
    let owner = truth.owners.name(lock.owner);
    owner.split_once(':').map_or(owner, |(client, _)| client)
}
