//! The fencing rule of a resource.

use crate::history::OpId;

/// The token alone would not distinguish two holders that were given the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) by: OpId,
    pub(super) token: u64,
}

/// The highest token that a register has seen, and whose it is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fence(Option<Caller>);

impl Fence {
    /// Whether an access is accepted: not with a token lower than the highest seen, nor with the
    /// same token from another holder. What is accepted, *reads included*, raises the highest: an
    /// older holder that has already read must not write after a newer one has read.
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
