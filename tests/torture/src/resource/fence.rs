//! The fencing rule of a resource.

/// Who accesses: the token alone would not tell two holders apart that were given the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) worker: u32,
    pub(crate) generation: u32,
    pub(crate) op: u64,
    pub(crate) token: u64,
}

/// The highest token that a thing has seen, and whose it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fence(Option<Caller>);

impl Fence {
    /// Whether an access is accepted: not with a token lower than the highest seen, nor with the same
    /// token from somebody else. What is accepted, *reads included*, raises the highest: an older holder
    /// that has already read must not write after a newer one has read.
    pub(crate) fn admit(&mut self, caller: Caller) -> bool {
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

    fn caller(op: u64, token: u64) -> Caller {
        Caller {
            worker: 1,
            generation: 1,
            op,
            token,
        }
    }

    #[test]
    fn tokens_may_rise_and_stay_but_not_fall() {
        let mut fence = Fence::default();
        assert!(fence.admit(caller(1, 5)));
        assert!(fence.admit(caller(1, 5)), "the same holder again");
        assert!(fence.admit(caller(2, 6)));
        assert!(!fence.admit(caller(1, 5)));
        assert!(fence.admit(caller(2, 6)), "a refusal changes nothing");
    }

    #[test]
    fn the_same_token_of_another_holder_is_stale() {
        let first = caller(1, 5);
        for other in [
            Caller { worker: 2, ..first },
            Caller {
                generation: 2,
                ..first
            },
            Caller { op: 2, ..first },
        ] {
            let mut fence = Fence::default();
            assert!(fence.admit(first));
            assert!(!fence.admit(other), "{other:?}");
            assert!(fence.admit(first));
        }
    }
}
