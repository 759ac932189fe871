//! Tokens: only their order matters, so a state's are numbered from one, and there are finitely many states.

use crate::state::{Call, Phase, Renewal, Signal, State};
use crate::wire::{Message, Proof, Token};

impl State {
    fn each_token(&mut self, mut f: impl FnMut(&mut Token)) {
        f(&mut self.last.0);
        if let Some(lock) = &mut self.server.lock {
            f(&mut lock.token);
        }
        for client in &mut self.clients {
            match &mut client.call {
                Call::Waiting { phase, signal, .. } => {
                    if let Phase::Confirming(_, token) = phase {
                        f(token);
                    }
                    if let Signal::Granted(proof) = signal {
                        f(&mut proof.token);
                    }
                }
                Call::Holding { proof, .. } => f(&mut proof.token),
                Call::Idle => {}
            }
            for message in client.down.iter_mut() {
                if let Message::Held(_, proof)
                | Message::Confirmed(_, proof)
                | Message::Push(_, proof) = message
                {
                    f(&mut proof.token);
                }
            }
            if let Renewal::Asked(_, token, _) = &mut client.renewal {
                f(token);
            }
        }
    }

    /// A token above all that anybody knows, as tokens made of the server's time are.
    pub(crate) fn next_token(&mut self) -> Token {
        let mut last = 0;
        self.each_token(|token| last = last.max(*token));
        last + 1
    }

    /// Numbers the tokens from one. `dead`: what is not believed any more has no use for its token.
    pub(crate) fn renumber(&mut self, dead: bool) {
        if dead {
            let forget = |proof: &mut Proof| {
                if proof.left == 0 {
                    *proof = Proof::default();
                }
            };
            for client in &mut self.clients {
                for message in client.down.iter_mut() {
                    if let Message::Held(_, proof)
                    | Message::Confirmed(_, proof)
                    | Message::Push(_, proof) = message
                    {
                        forget(proof);
                    }
                }
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
        }
        let mut used = 0_u64;
        self.each_token(|token| used |= 1 << *token);
        used &= !1;
        self.each_token(|token| {
            if *token != 0 {
                *token = (used & ((2 << *token) - 1)).count_ones() as Token;
            }
        });
    }
}
