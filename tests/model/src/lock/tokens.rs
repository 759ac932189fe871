//! The tokens of a state.

use super::config::Rules;
use super::state::{Phase, Renewal, State};
use super::wire::Proof;
use crate::tokens::{Token, Tokens};

impl Tokens for State {
    fn each_token(&mut self, mut visit: impl FnMut(&mut Token)) {
        let server = &mut self.server;
        visit(&mut self.last.0);
        visit(&mut self.newest);
        visit(&mut self.seen);
        visit(&mut server.fence);
        visit(&mut server.phase_token);
        server
            .records
            .iter_mut()
            .for_each(|record| visit(&mut record.token));
        for client in &mut self.clients {
            visit(&mut client.write_token);
            client.proofs().for_each(|proof| visit(&mut proof.token));
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
        let forgets = rules.grant_age && rules.token_of_proof;
        let records = self.server.records.iter_mut();
        let expired = records.filter(|record| record.ttl == 0 && rules.expired_is_absent);
        expired.for_each(|record| record.token = 0);
        for client in self.clients.iter_mut().filter(|_| forgets) {
            let expired = client.proofs().filter(|proof| proof.left == 0);
            expired.for_each(|proof| *proof = Proof::default());
            let call = &mut client.call;
            if call.phase == Phase::Holding && call.proof.left == 0 {
                (call.confirmed, call.confirming) = (true, false);
            }
        }
        self.number_tokens();
    }
}
