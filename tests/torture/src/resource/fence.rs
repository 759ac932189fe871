//! The fencing rule of a resource.

use crate::history::OpId;

/// The id of a holder. The token alone does not distinguish two holders that have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) by: OpId,
    pub(super) token: u64,
}

/// The highest token that a register has seen, and its holder.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fence(Option<Caller>);

impl Fence {
    /// Returns true if an access is accepted. Rejects a token lower than the highest one seen, and
    /// the same token from another holder. Every accepted access, *reads included*, raises the
    /// highest token. Otherwise an older holder that has read could write after a newer one read.
    pub(super) fn admit(&mut self, caller: Caller) -> bool {
        let stale = self.0.is_some_and(|highest| {
            caller.token < highest.token || caller.token == highest.token && caller != highest
        });
        if !stale {
            self.0 = Some(caller);
        }
        !stale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_may_rise_and_stay_with_their_holder_but_not_fall() {
        let of = |op, token| Caller {
            by: OpId {
                worker: 1,
                generation: 1,
                op,
            },
            token,
        };
        let mut fence = Fence::default();
        for (op, token, admitted) in [
            (1, 5, true),
            (1, 5, true),
            (2, 5, false),
            (2, 6, true),
            (1, 5, false),
            (2, 6, true),
        ] {
            assert_eq!(
                fence.admit(of(op, token)),
                admitted,
                "op {op} token {token}"
            );
        }
    }
}
