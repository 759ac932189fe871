//! The fencing rule of a resource.

use crate::history::OpId;

/// The id of a holder. The token alone does not distinguish two holders that have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) by: OpId,
    pub(super) token: u64,
    /// A reader, which shares its token with the other readers of its phase.
    pub(super) shared: bool,
}

/// The highest token that a register has seen, and its holder.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fence(Option<Caller>);

impl Fence {
    /// Returns true if an access is accepted. Rejects a token lower than the highest one seen, and
    /// the same token from another holder, unless both are readers. Every accepted access, *reads included*, raises the
    /// highest token. Otherwise an older holder that has read could write after a newer one read.
    pub(super) fn admit(&mut self, caller: Caller) -> bool {
        let stale = self.0.is_some_and(|highest| {
            let is_other = caller.by != highest.by && !(caller.shared && highest.shared);
            caller.token < highest.token || caller.token == highest.token && is_other
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
        let of = |op, token, shared| Caller {
            by: OpId {
                worker: 1,
                generation: 1,
                op,
            },
            token,
            shared,
        };
        let mut fence = Fence::default();
        for (op, token, shared, admitted) in [
            (1, 5, false, true),
            (1, 5, false, true),
            (2, 5, false, false),
            (2, 6, false, true),
            (1, 5, false, false),
            (2, 6, false, true),
            (3, 6, true, false),
            (3, 7, true, true),
            (4, 7, true, true),
            (3, 7, true, true),
            (2, 6, false, false),
        ] {
            assert_eq!(
                fence.admit(of(op, token, shared)),
                admitted,
                "op {op} token {token}"
            );
        }
    }
}
