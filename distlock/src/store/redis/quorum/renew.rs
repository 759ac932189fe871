//! Extends holds on all nodes, and repairs them on nodes that lost them.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::error::Outage;
use crate::protocol::messages::{OwnerId, Proof, RenewReply, Renewal, RenewalFailure};
use crate::protocol::rules::rule;
use crate::protocol::store_error::StoreError;
use crate::store::StoreResult;
use crate::store::redis::quorum::QuorumStore;
use crate::store::redis::quorum::attempt::QuorumHold;
use crate::store::redis::quorum::commands::{NodeRenewal, RenewOnNode, VoteAction};

impl QuorumStore {
    /// Extends holds on all nodes. A hold that continues is repaired on the nodes that lost it.
    pub(super) async fn renew(
        self: &Arc<Self>,
        batch: &[Renewal<'_>],
        timeout: Duration,
    ) -> RenewReply {
        let sent_at = self.clock.now();
        let (mut holds, mut indices, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for (index, renewal) in batch.iter().enumerate() {
            match self.find_hold(renewal.target.owner) {
                Some(hold) => {
                    holds.push(hold);
                    indices.push(index);
                }
                None => failures.push((index, RenewalFailure::Gone)),
            }
        }
        let renewed = self.extend(holds, timeout).await;
        let failed = indices.into_iter().zip(renewed);
        failures.extend(failed.filter_map(|(index, renewed)| Some((index, renewed.err()?))));
        RenewReply { sent_at, failures }
    }

    /// Extends the hold of a call that has waited. Returns `None` if it has expired.
    pub(super) async fn confirm(
        self: &Arc<Self>,
        owner: OwnerId,
        timeout: Duration,
    ) -> StoreResult<Option<Proof>> {
        let sent_at = self.clock.now();
        let Some(hold) = self.find_hold(owner) else {
            return Ok(None);
        };
        let proof = hold.proof(sent_at);
        let renewed = self.extend(vec![hold], timeout).await;
        match renewed.into_iter().next() {
            Some(Ok(())) => Ok(Some(proof)),
            Some(Err(RenewalFailure::Error(error))) => Err(error),
            Some(Err(RenewalFailure::Gone | RenewalFailure::Revoked)) | None => Ok(None),
        }
    }

    async fn extend(
        self: &Arc<Self>,
        holds: Vec<QuorumHold>,
        timeout: Duration,
    ) -> Vec<Result<(), RenewalFailure>> {
        let (nodes, quorum_size) = (self.nodes.len(), self.quorum_size);
        let holds = Arc::new(holds);
        let newest = self.newest_time();
        let mut renewing = JoinSet::new();
        for index in 0..nodes {
            let (quorum, holds) = (self.clone(), holds.clone());
            renewing.spawn_on(
                async move {
                    let node = &quorum.nodes[index];
                    let renew = RenewOnNode {
                        holds: &holds,
                        newest,
                        config: &quorum.config,
                    };
                    let results = node.run(&renew, timeout).await;
                    let results = results.unwrap_or_else(|error| {
                        vec![NodeRenewal::Error(error.at(node.address())); holds.len()]
                    });
                    for (QuorumHold { attempt, token }, result) in holds.iter().zip(&results) {
                        if matches!(result, NodeRenewal::Repairable) {
                            // The repaired hold counts from the next renewal on, which also retries
                            // a repair that failed.
                            let repair = VoteAction::Repair(*token);
                            let repairing =
                                quorum.clone().send(index, attempt.clone(), repair, timeout);
                            quorum.spawn(async move { drop(repairing.await) });
                        }
                    }
                    results
                },
                &self.runtime,
            );
        }
        let mut tallies = vec![Tally::default(); holds.len()];
        while let Some(Ok(results)) = renewing.join_next().await {
            for (tally, result) in tallies.iter_mut().zip(results) {
                tally.add(result);
            }
            if tallies.iter().all(|tally| tally.ours >= quorum_size) {
                break;
            }
        }
        // The remaining nodes are renewed nevertheless.
        renewing.detach_all();
        tallies
            .into_iter()
            .map(|tally| tally.outcome(nodes, quorum_size))
            .collect()
    }
}

/// The results of all nodes for one hold.
#[derive(Clone, Debug, Default)]
struct Tally {
    ours: usize,
    not_ours: usize,
    is_revoked: bool,
    error: Option<StoreError>,
}

impl Tally {
    fn add(&mut self, result: NodeRenewal) {
        match result {
            NodeRenewal::Held => self.ours += 1,
            NodeRenewal::NotOurs => self.not_ours += 1,
            NodeRenewal::Revoked => {
                self.not_ours += 1;
                self.is_revoked = true;
            }
            // A repaired hold counts from the next renewal on.
            NodeRenewal::Repairable => {}
            NodeRenewal::Error(error) => self.error = Some(error),
        }
    }

    fn outcome(self, nodes: usize, quorum_size: usize) -> Result<(), RenewalFailure> {
        if self.ours >= quorum_size || self.ours > 0 && !rule!(quorum_extends) {
            Ok(())
        } else if self.not_ours > nodes - quorum_size {
            Err(if self.is_revoked {
                RenewalFailure::Revoked
            } else {
                RenewalFailure::Gone
            })
        } else {
            let error = self.error.unwrap_or_else(|| {
                StoreError::new(
                    Outage::NotReady,
                    format!(
                        "{} of {nodes} servers have the lock, and a quorum is {quorum_size}",
                        self.ours
                    ),
                )
            });
            Err(RenewalFailure::Error(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter per node: Ours, Not ours, Revoked, Free (repairable), or an error (?).
    fn outcome(answers: &str) -> &'static str {
        let result = |letter| match letter {
            'O' => NodeRenewal::Held,
            'N' => NodeRenewal::NotOurs,
            'R' => NodeRenewal::Revoked,
            'F' => NodeRenewal::Repairable,
            _ => NodeRenewal::Error(StoreError::new(Outage::TimedOut, "no answer")),
        };
        let mut tally = Tally::default();
        answers
            .chars()
            .map(result)
            .for_each(|result| tally.add(result));
        match tally.outcome(answers.len(), answers.len() / 2 + 1) {
            Ok(()) => "held",
            Err(RenewalFailure::Gone) => "gone",
            Err(RenewalFailure::Revoked) => "revoked",
            Err(RenewalFailure::Error(_)) => "unknown",
        }
    }

    #[test]
    fn a_hold_is_gone_once_too_few_nodes_can_still_have_it() {
        for (expected, answers) in [
            ("held", "OOO OON OOONN"),
            ("gone", "ONN ?NN FNN NNN OONN OONNN ??NNN"),
            ("revoked", "ONR ?RR"),
            ("unknown", "OFN O?N O?? FFF OO?N OO?NN OOFFN"),
        ] {
            for answers in answers.split(' ') {
                assert_eq!(outcome(answers), expected, "{answers}");
            }
        }
    }
}
