//! The tokens of a state.

use super::config::Rules;
use super::state::{Call, Phase, Renewal, Signal, State};
use super::wire::{Message, Proof};
use crate::tokens::{Token, Tokens};

impl Tokens for State {
    fn each_token(&mut self, mut visit: impl FnMut(&mut Token)) {
        let server = &mut self.server;
        let records = server.records.iter_mut().map(|record| &mut record.token);
        let clients = self.clients.iter_mut();
        [&mut self.last.0, &mut self.newest, &mut self.seen]
            .into_iter()
            .chain([&mut server.fence, &mut server.phase_token])
            .chain(records)
            .for_each(&mut visit);
        for client in clients {
            visit(&mut client.write_token);
            match &mut client.call {
                Call::Waiting { phase, signal, .. } => {
                    if let Phase::Confirming(_, token) = phase {
                        visit(token);
                    }
                    if let Signal::Granted(proof) = signal {
                        visit(&mut proof.token);
                    }
                }
                Call::Holding { proof, .. } => visit(&mut proof.token),
                Call::Idle => {}
            }
            for proof in client.down.iter_mut().filter_map(Message::proof_mut) {
                visit(&mut proof.token);
            }
            match &mut client.renewal {
                Renewal::None => {}
                Renewal::Requested(_, token, _) | Renewal::Answered(_, token, _) => visit(token),
            }
        }
    }
}

impl State {
    /// Numbers the tokens. What has expired needs none, unless a rule is missing.
    pub(crate) fn renumber(&mut self, rules: &Rules) {
        let dead = rules.grant_age && rules.token_of_proof;
        let records = self.server.records.iter_mut();
        let expired = records.filter(|record| record.ttl == 0 && rules.expired_is_absent);
        expired.for_each(|record| record.token = 0);
        let forget = |proof: &mut Proof| {
            if proof.left == 0 {
                *proof = Proof::default();
            }
        };
        for client in self.clients.iter_mut().filter(|_| dead) {
            let proofs = client.down.iter_mut().filter_map(Message::proof_mut);
            proofs.for_each(forget);
            match &mut client.call {
                Call::Waiting {
                    signal: Signal::Granted(proof),
                    ..
                } => forget(proof),
                Call::Holding {
                    proof,
                    confirmed,
                    confirming,
                    ..
                } => {
                    forget(proof);
                    if proof.left == 0 {
                        (*confirmed, *confirming) = (true, false);
                    }
                }
                _ => {}
            }
        }
        self.number_tokens();
    }
}
