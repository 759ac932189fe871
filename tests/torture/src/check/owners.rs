//! Whose a lock on the server is: through its token to the call, through its client to the process.

use std::collections::HashMap;

use crate::check::run::{Key, Op, Run};
use crate::check::truth::{Client, Owner, Truth};

#[derive(Debug)]
pub(crate) struct Owners<'a> {
    ops: HashMap<(Key, u64), &'a Op>,
    processes: HashMap<Client, (u32, u32)>,
}

impl<'a> Owners<'a> {
    pub(crate) fn new(run: &'a Run, truth: &Truth) -> Owners<'a> {
        let mut ops = HashMap::new();
        let mut seen: HashMap<Client, HashMap<(u32, u32), u64>> = HashMap::new();
        for op in &run.ops {
            let Some(token) = op.token() else { continue };
            ops.entry((op.key, token)).or_insert(op);
            if let Some(lock) = truth.lock(op.key, token) {
                let processes = seen.entry(truth.client_of(lock.owner)).or_default();
                let process = (op.id.worker, op.id.generation);
                *processes.entry(process).or_default() += 1;
            }
        }
        // Two nodes of a quorum may give two owners the same token, of which one comes to hold it.
        let most =
            |processes: HashMap<_, u64>| processes.into_iter().max_by_key(|(_, count)| *count);
        let processes = seen
            .into_iter()
            .filter_map(|(client, processes)| Some((client, most(processes)?.0)));
        let processes = processes.collect();
        Owners { ops, processes }
    }

    /// The call that believed in this token.
    pub(crate) fn op(&self, key: Key, token: u64) -> Option<&'a Op> {
        self.ops.get(&(key, token)).copied()
    }

    /// The worker and generation of an owner, if any call of its client was ever believed.
    pub(crate) fn process(&self, truth: &Truth, owner: Owner) -> Option<(u32, u32)> {
        self.processes.get(&truth.client_of(owner)).copied()
    }
}
