//! Extends holds on all nodes, and repairs them on nodes that lost them.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::error::Outage;
use crate::fencing::FencingToken;
use crate::protocol::rules::Rules;
use crate::protocol::trouble::Trouble;
use crate::protocol::words::{Proof, Renewal, RenewalFailure, Renewed};
use crate::store::redis::quorum::Quorum;
use crate::store::redis::quorum::candidate::Token;
use crate::store::redis::quorum::verbs::{Asks, Kept, RenewVotes, Repair};

impl Quorum {
    /// Extends holds on all nodes. A hold that continues is repaired on the nodes that lost it.
    pub(super) async fn renew(self: &Arc<Self>, batch: &[Renewal], timeout: Duration) -> Renewed {
        let sent = self.polls.clock.now();
        let (mut holds, mut indices, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for (index, renewal) in batch.iter().enumerate() {
            match self.held(renewal.owner) {
                Some(hold) => {
                    holds.push(hold);
                    indices.push(index);
                }
                None => failures.push((index, RenewalFailure::Gone)),
            }
        }
        let renewed = self.extend(holds, true, timeout).await;
        let failed = indices.into_iter().zip(renewed);
        failures.extend(failed.filter_map(|(index, renewed)| Some((index, renewed.err()?))));
        Renewed { sent, failures }
    }

    async fn extend(
        self: &Arc<Self>,
        holds: Vec<(Asks, u64)>,
        repairs: bool,
        within: Duration,
    ) -> Vec<Result<(), RenewalFailure>> {
        let (nodes, quorum) = (self.polls.members.nodes.len(), self.polls.members.quorum);
        let holds = Arc::new(holds);
        let mut renewing = JoinSet::new();
        for node in 0..nodes {
            let (quorum, holds) = (self.clone(), holds.clone());
            renewing.spawn_on(
                async move {
                    let member = &quorum.polls.members.nodes[node];
                    let renew = RenewVotes {
                        holds: &holds,
                        terms: &quorum.polls.terms,
                    };
                    let kept = member.run(None, &renew, within).await;
                    let kept = kept.unwrap_or_else(|trouble| {
                        vec![Kept::Trouble(trouble.at(member.address())); holds.len()]
                    });
                    for (hold, kept) in holds.iter().zip(&kept) {
                        if repairs && matches!(kept, Kept::Free) {
                            quorum.repair(node, hold, within);
                        }
                    }
                    kept
                },
                &self.polls.runtime,
            );
        }
        let mut tallies = vec![Tally::default(); holds.len()];
        while let Some(Ok(kept)) = renewing.join_next().await {
            for (tally, kept) in tallies.iter_mut().zip(kept) {
                tally.add(kept);
            }
            if tallies.iter().all(|tally| tally.ours >= quorum) {
                break;
            }
        }
        // The remaining nodes are renewed nevertheless.
        renewing.detach_all();
        tallies
            .into_iter()
            .map(|tally| tally.outcome(nodes, quorum, self.polls.rules))
            .collect()
    }

    /// Extends a hold that was handed on. Returns `None` if it has expired. Repairs nothing,
    /// because the hold may not have begun, and another owner may hold the lock by now.
    pub(super) async fn confirm(
        self: &Arc<Self>,
        asks: Asks,
        token: Token,
        within: Duration,
    ) -> Result<Option<Proof>, Trouble> {
        let sent = self.polls.clock.now();
        let renewed = self.extend(vec![(asks, token)], false, within).await;
        match renewed.into_iter().next() {
            Some(Ok(())) => Ok(Some(Proof {
                sent,
                token: FencingToken::new(token),
            })),
            Some(Err(RenewalFailure::Trouble(trouble))) => Err(trouble),
            Some(Err(RenewalFailure::Gone | RenewalFailure::Revoked)) | None => Ok(None),
        }
    }

    /// Repairs a hold on a node that has lost it, in the background.
    fn repair(&self, node: usize, (asks, token): &(Asks, u64), within: Duration) {
        let Some(ballot) = self.ballot_of(asks.owner) else {
            return;
        };
        // No repair starts after a release has begun. A release that begins now waits for the
        // repair.
        if !ballot.begin_repair(node) {
            return;
        }
        let (polls, token) = (self.polls.clone(), *token);
        polls.clone().spawn(async move {
            let repair = Repair {
                asks: &ballot.asks,
                token,
                terms: &polls.terms,
            };
            // On failure, the next renewal retries the repair.
            let _ = polls.members.nodes[node].run(None, &repair, within).await;
            ballot.has_repaired(&polls, node);
        });
    }
}

/// The results of all nodes for one hold.
#[derive(Clone, Debug, Default)]
struct Tally {
    ours: usize,
    not_ours: usize,
    is_revoked: bool,
    trouble: Option<Trouble>,
}

impl Tally {
    fn add(&mut self, kept: Kept) {
        match kept {
            Kept::Ours => self.ours += 1,
            Kept::NotOurs => self.not_ours += 1,
            Kept::Revoked => {
                self.not_ours += 1;
                self.is_revoked = true;
            }
            // A repaired hold counts from the next renewal on.
            Kept::Free => {}
            Kept::Trouble(trouble) => self.trouble = Some(trouble),
        }
    }

    fn outcome(self, nodes: usize, quorum: usize, rules: Rules) -> Result<(), RenewalFailure> {
        if self.ours >= quorum || self.ours > 0 && !rules.quorum_extends {
            Ok(())
        } else if self.not_ours > nodes - quorum {
            Err(if self.is_revoked {
                RenewalFailure::Revoked
            } else {
                RenewalFailure::Gone
            })
        } else {
            let trouble = self.trouble.unwrap_or_else(|| {
                Trouble::new(
                    Outage::NotReady,
                    format!(
                        "{} of {nodes} servers have the lock, and a quorum is {quorum}",
                        self.ours
                    ),
                )
            });
            Err(RenewalFailure::Trouble(trouble))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter per node: Ours, Not ours, Revoked, Free, or an error (?).
    fn outcome(answers: &str) -> &'static str {
        let kept = |letter| match letter {
            'O' => Kept::Ours,
            'N' => Kept::NotOurs,
            'R' => Kept::Revoked,
            'F' => Kept::Free,
            _ => Kept::Trouble(Trouble::new(Outage::TimedOut, "no answer")),
        };
        let mut tally = Tally::default();
        answers.chars().map(kept).for_each(|kept| tally.add(kept));
        match tally.outcome(answers.len(), answers.len() / 2 + 1, Rules::ALL) {
            Ok(()) => "held",
            Err(RenewalFailure::Gone) => "gone",
            Err(RenewalFailure::Revoked) => "revoked",
            Err(RenewalFailure::Trouble(_)) => "unknown",
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
