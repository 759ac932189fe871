//! The tokens of a state.

use super::state::{Call, Phase, Renewal, Signal, State};
use super::wire::{Message, Proof};
use crate::tokens::{Token, Tokens};

impl Tokens for State {
    fn each_token(&mut self, mut visit: impl FnMut(&mut Token)) {
        visit(&mut self.last.0);
        if let Some(lock) = &mut self.server.lock {
            visit(&mut lock.token);
        }
        for client in &mut self.clients {
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
            if let Renewal::Requested(_, token, _) = &mut client.renewal {
                visit(token);
            }
        }
    }
}

impl State {
    /// Numbers the tokens. If `dead`, expired proofs are cleared first and need no tokens.
    pub(crate) fn renumber(&mut self, dead: bool) {
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
