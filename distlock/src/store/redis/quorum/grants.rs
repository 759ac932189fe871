//! The decision whether an attempt has the lock, without I/O: `handle` processes a node's reply,
//! and `step` returns what follows. The model (`tests/model`, module `quorum`) explores these
//! rules.

use crate::error::Outage;
use crate::protocol::messages::HolderView;
use crate::protocol::rules::rule;
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
pub(super) enum AttemptStep {
    AwaitReply,
    /// These nodes must get this token.
    Confirm(Token, Vec<usize>),
    Held(Token),
    /// Too few nodes can still have the lock.
    Failed,
}

/// Why an attempt has failed.
#[derive(Debug)]
pub(super) enum AttemptFailure {
    /// Others have the lock, or parts of it. The holder is the one with the most nodes.
    Taken {
        holder: Option<HolderView>,
        by_majority: bool,
    },
    KeyConflict(String),
    Error(StoreError),
}

impl AttemptFailure {
    /// Other clients want the lock.
    pub(super) const CONTENDED: AttemptFailure = AttemptFailure::Taken {
        holder: None,
        by_majority: false,
    };

    pub(super) fn holder(&self) -> Option<&HolderView> {
        match self {
            AttemptFailure::Taken { holder, .. } => holder.as_ref(),
            AttemptFailure::KeyConflict(_) | AttemptFailure::Error(_) => None,
        }
    }
}

/// The grants of the nodes to one attempt.
#[derive(Debug)]
pub(super) struct Grants {
    nodes: Vec<NodeState>,
    quorum_size: usize,
    /// The token of the hold: the largest one, once a majority has granted.
    token: Option<Token>,
}

impl Grants {
    pub(super) fn new(nodes: usize, quorum_size: usize) -> Self {
        Grants {
            nodes: vec![NodeState::Requested; nodes],
            quorum_size,
            token: None,
        }
    }

    /// Handles the reply of a node to an acquire, or to a confirmation.
    pub(super) fn handle(&mut self, node: usize, reply: Result<Token, Refusal>) {
        self.nodes[node] = match reply {
            Ok(token) => NodeState::Granted(token),
            Err(refusal) => NodeState::Refused(refusal),
        };
    }

    pub(super) fn step(&mut self) -> AttemptStep {
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
                *state = if given == token || !rule!(written_back) {
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
                return AttemptStep::Held(token);
            }
        }
        if self.count(|state| !matches!(state, NodeState::Refused(_))) < self.quorum_size {
            AttemptStep::Failed
        } else if let (Some(token), false) = (self.token, outdated.is_empty()) {
            AttemptStep::Confirm(token, outdated)
        } else {
            AttemptStep::AwaitReply
        }
    }

    fn count(&self, counts: impl Fn(&NodeState) -> bool) -> usize {
        self.nodes.iter().filter(|state| counts(state)).count()
    }

    /// Returns why the attempt has failed.
    pub(super) fn failure(&self) -> AttemptFailure {
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
            return AttemptFailure::Taken {
                by_majority: holder.is_some_and(|holder| nodes_of(holder) >= self.quorum_size),
                holder: holder.cloned(),
            };
        };
        let mut quarantines = Vec::new();
        let mut error = StoreError::new(Outage::NotReady, "no server has replied yet");
        for refusal in refusals() {
            match refusal {
                Refusal::KeyConflict(detail) => return AttemptFailure::KeyConflict(detail.clone()),
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
        AttemptFailure::Error(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::clock::ServerTime;

    fn taken(token: u64) -> Refusal {
        Refusal::Taken(HolderView {
            local_owner: None,
            this_process: false,
            token: crate::fencing::FencingToken::new(token),
            weight: 1,
            since: ServerTime(7),
            expires_in: None,
            kept_until: None,
            client_name: "another".to_owned(),
            metadata: None,
        })
    }

    fn failed() -> Refusal {
        Refusal::Failed(StoreError::new(Outage::TimedOut, "no answer"))
    }

    /// Feeds the replies of the nodes, in their order, and returns the last step.
    fn after(nodes: usize, replies: Vec<Result<Token, Refusal>>) -> (Grants, AttemptStep) {
        let mut grants = Grants::new(nodes, nodes / 2 + 1);
        let mut step = grants.step();
        for (node, reply) in replies.into_iter().enumerate() {
            grants.handle(node, reply);
            step = grants.step();
        }
        (grants, step)
    }

    #[test]
    fn equal_tokens_of_a_majority_are_a_hold() {
        assert_eq!(after(3, vec![Ok(7)]).1, AttemptStep::AwaitReply);
        assert_eq!(after(3, vec![Ok(7), Ok(7)]).1, AttemptStep::Held(7));
        let two_of_five = vec![Ok(7), Ok(7)];
        assert_eq!(after(5, two_of_five).1, AttemptStep::AwaitReply);
    }

    #[test]
    fn the_largest_token_is_written_to_the_nodes_that_gave_less() {
        let (mut grants, step) = after(3, vec![Ok(9), Ok(7)]);
        assert_eq!(step, AttemptStep::Confirm(9, vec![1]));
        // A token that arrives later does not count if it is larger, and is replaced if smaller.
        grants.handle(2, Ok(11));
        assert_eq!(grants.step(), AttemptStep::AwaitReply);
        grants.handle(1, Ok(9));
        assert_eq!(grants.step(), AttemptStep::Held(9));
        let (mut grants, _) = after(3, vec![Ok(9), Ok(7), Ok(8)]);
        grants.handle(1, Err(Refusal::Outdated));
        assert_eq!(grants.step(), AttemptStep::AwaitReply);
        grants.handle(2, Ok(9));
        assert_eq!(grants.step(), AttemptStep::Held(9));
    }

    #[test]
    fn too_few_nodes_are_a_failure_with_its_reason() {
        let failure = |replies| {
            let (grants, step) = after(3, replies);
            assert_eq!(step, AttemptStep::Failed);
            match grants.failure() {
                AttemptFailure::Taken {
                    holder,
                    by_majority,
                } => {
                    format!(
                        "{:?} {by_majority}",
                        holder.map(|holder| holder.token.get())
                    )
                }
                AttemptFailure::KeyConflict(detail) => detail,
                AttemptFailure::Error(error) => error.to_string(),
            }
        };
        assert_eq!(failure(vec![Err(taken(5)), Err(taken(5))]), "Some(5) true");
        let split = vec![Ok(7), Err(taken(6)), Err(taken(5))];
        assert!(failure(split).ends_with(" false"));
        // A node without a reply may grant later, but two of three may not.
        let one_failed = vec![Ok(7), Err(failed()), Err(taken(5))];
        assert_eq!(failure(one_failed), "Some(5) false");
        let two_failed = vec![Err(failed()), Err(failed())];
        assert!(failure(two_failed).contains("no answer"));
        let quarantine = |millis| {
            Err(Refusal::Quarantine(std::time::Duration::from_millis(
                millis,
            )))
        };
        let waits = failure(vec![quarantine(2_000), quarantine(1_000), Err(failed())]);
        assert!(waits.contains("will grant in 2.0 s"), "{waits}");
        let conflicts = vec![
            Err(failed()),
            Err(Refusal::KeyConflict("a list".to_owned())),
        ];
        assert_eq!(failure(conflicts), "a list");
    }
}
