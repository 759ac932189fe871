//! The decision whether an attempt has the lock, without I/O: `handle` processes a node's reply,
//! and `step` returns what follows. The model (`tests/model`, module `quorum`) explores these
//! rules.

use crate::error::Outage;
use crate::protocol::messages::HolderView;
use crate::protocol::rules::Rules;
use crate::protocol::store_error::StoreError;
use crate::store::redis::quorum::attempt::Token;
use crate::store::redis::quorum::commands::Refusal;

/// What is known of one node.
#[derive(Clone, Debug)]
enum NodeState {
    Requested,
    Granted(Token),
    /// The token of the whole hold is being written to the node.
    Confirming,
    /// The node has the token of the whole hold.
    Confirmed,
    Refused(Refusal),
}

/// What an attempt does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    AwaitReply,
    /// These nodes must get this token.
    Confirm(Token, Vec<usize>),
    Held(Token),
    /// Too few nodes can still have the lock.
    Failed,
}

/// Why an attempt has failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Others have the lock, or parts of it. The holder is the one with the most nodes.
    Taken {
        holder: Option<HolderView>,
        by_majority: bool,
    },
    KeyConflict(String),
    Error(StoreError),
}

/// The grants of the nodes to one attempt.
#[derive(Debug)]
pub(super) struct Grants {
    nodes: Vec<NodeState>,
    quorum_size: usize,
    /// The token of the hold: the largest one, once a majority has granted.
    token: Option<Token>,
    rules: Rules,
}

impl Grants {
    pub(super) fn new(nodes: usize, quorum_size: usize, rules: Rules) -> Self {
        Grants {
            nodes: vec![NodeState::Requested; nodes],
            quorum_size,
            token: None,
            rules,
        }
    }

    /// Handles the reply of a node to an acquire, or to a confirmation.
    pub(super) fn handle(&mut self, node: usize, reply: Result<Option<Token>, Refusal>) {
        self.nodes[node] = match reply {
            Ok(Some(token)) => NodeState::Granted(token),
            Ok(None) => NodeState::Confirmed,
            Err(refusal) => NodeState::Refused(refusal),
        };
    }

    pub(super) fn step(&mut self) -> Step {
        let granted = self.nodes.iter().filter_map(|state| match state {
            NodeState::Granted(token) => Some(*token),
            _ => None,
        });
        if self.token.is_none() && granted.clone().count() >= self.quorum_size {
            self.token = granted.max();
        }
        let mut outdated = Vec::new();
        if let Some(token) = self.token {
            for (node, state) in self.nodes.iter_mut().enumerate() {
                let NodeState::Granted(given) = *state else {
                    continue;
                };
                *state = if given == token || !self.rules.written_back {
                    NodeState::Confirmed
                } else if given < token {
                    outdated.push(node);
                    NodeState::Confirming
                } else {
                    // A node never goes back to a smaller token.
                    NodeState::Refused(Refusal::Outdated)
                };
            }
            if self.count(|state| matches!(state, NodeState::Confirmed)) >= self.quorum_size {
                return Step::Held(token);
            }
        }
        if self.count(|state| !matches!(state, NodeState::Refused(_))) < self.quorum_size {
            Step::Failed
        } else if let (Some(token), false) = (self.token, outdated.is_empty()) {
            Step::Confirm(token, outdated)
        } else {
            Step::AwaitReply
        }
    }

    fn count(&self, is_counted: impl Fn(&NodeState) -> bool) -> usize {
        self.nodes.iter().filter(|state| is_counted(state)).count()
    }

    /// Returns why the attempt has failed.
    pub(super) fn failure(&self) -> Failure {
        let refusals = || {
            self.nodes.iter().filter_map(|state| match state {
                NodeState::Refused(refusal) => Some(refusal),
                _ => None,
            })
        };
        let may_grant_later = self.count(|state| {
            !matches!(
                state,
                NodeState::Refused(
                    Refusal::KeyConflict(_) | Refusal::Quarantine(_) | Refusal::Failed(_)
                )
            )
        });
        let Some(missing) = self.quorum_size.checked_sub(may_grant_later + 1) else {
            let holders = refusals().filter_map(|refusal| match refusal {
                Refusal::Taken(holder) => Some(holder),
                _ => None,
            });
            let nodes_of = |holder: &HolderView| {
                let same = holders.clone().filter(|other| other.is_same(holder));
                same.count()
            };
            let holder = holders.clone().max_by_key(|holder| nodes_of(holder));
            return Failure::Taken {
                by_majority: holder.is_some_and(|holder| nodes_of(holder) >= self.quorum_size),
                holder: holder.cloned(),
            };
        };
        let mut quarantines = Vec::new();
        let mut error = StoreError::new(Outage::NotReady, "no server has replied yet");
        for refusal in refusals() {
            match refusal {
                Refusal::KeyConflict(detail) => return Failure::KeyConflict(detail.clone()),
                Refusal::Quarantine(remaining) => quarantines.push(*remaining),
                Refusal::Failed(failed) => error = failed.clone(),
                Refusal::Taken(_) | Refusal::Outdated => {}
            }
        }
        quarantines.sort_unstable();
        if let Some(remaining) = quarantines.get(missing) {
            error = StoreError::new(
                Outage::NotReady,
                format!(
                    "not enough servers grant locks after a restart or data loss, because a lock that they forgot \
                     may still be held; a quorum will grant in {:.1} s",
                    remaining.as_secs_f64()
                ),
            );
        }
        Failure::Error(error)
    }
}
