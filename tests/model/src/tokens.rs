//! Tokens. Only their order matters, so a state numbers them from one and states stay finite.

/// A fencing token. Zero means none.
pub type Token = u8;

/// A state with tokens.
pub(crate) trait Tokens {
    /// Visits every token that is stored or in flight.
    fn each_token(&mut self, visit: impl FnMut(&mut Token));

    /// Returns the largest token.
    fn newest(&mut self) -> Token {
        let mut newest = 0;
        self.each_token(|token| newest = newest.max(*token));
        newest
    }

    /// Numbers the tokens from one, in their order.
    fn number_tokens(&mut self) {
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
