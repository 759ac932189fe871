//! Faults of independent servers: what one of them forgets must be too old to matter when another one forgets.

use crate::plan::{Kind, Planned};
use crate::supervisor::Setup;
use crate::topology::Independent;

/// What is in force at the nodes.
#[derive(Debug)]
pub(super) struct Voters<'a> {
    nodes: &'a Independent,
    /// They are said to forget nothing, and do.
    forgetful: bool,
    /// At most one at each node.
    busy: Vec<(Option<u32>, Kind)>,
}

impl<'a> Voters<'a> {
    /// `None` where there are none.
    pub(super) fn new(setup: &'a Setup) -> Option<Self> {
        Some(Voters {
            nodes: setup.field.independent()?,
            forgetful: setup.profile.forgetful,
            busy: Vec::new(),
        })
    }

    /// Whether nothing else is in force at its node, and it is within what a quorum promises: a node forgets only while all
    /// of them vote.
    pub(super) fn are_ready_for(&self, fault: &Planned) -> anyhow::Result<bool> {
        if self.busy.iter().any(|(node, _)| *node == fault.node) {
            return Ok(false);
        }
        if !fault.kind.forgets() || self.forgetful {
            return Ok(true);
        }
        // Who is silent cannot be asked.
        let is_silent = self.busy.iter().any(|(_, kind)| is_silent(*kind));
        Ok(!is_silent && self.nodes.all_vote()?)
    }

    pub(super) fn begin(&mut self, fault: &Planned) {
        if !fault.kind.is_instant() {
            self.busy.push((fault.node, fault.kind));
        }
    }

    pub(super) fn end(&mut self, fault: &Planned) {
        self.busy.retain(|(node, _)| *node != fault.node);
    }
}

fn is_silent(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::NodeStop | Kind::NodeStopLong | Kind::NodeLoss | Kind::NodeRewind | Kind::Busy
    )
}
