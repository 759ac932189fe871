//! What a node says that does not execute a command.

use crate::protocol::trouble::Trouble;
use crate::store::redis::cluster::map::Address;
use crate::store::redis::wire::slots::Slot;
use crate::store::redis::wire::trouble;

/// Why a node has not executed a command, and who may.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The slot is another node's.
    Moved(Slot, Address),
    /// The slot is on its way to another node, and the key is there already.
    Ask(Address),
    /// The slot is on its way, or nobody has it.
    Later,
}

impl Redirect {
    pub(super) fn of(trouble: &Trouble, asked: &Address) -> Option<Self> {
        if !trouble::is_redirect(trouble) {
            return None;
        }
        let mut words = trouble.detail.split_ascii_whitespace();
        let code = words.next();
        let slot = words.next().and_then(|slot| Slot::new(slot.parse().ok()?));
        let to = words.next().and_then(|to| Address::read(to, asked));
        Some(match (code, slot, to) {
            (Some("MOVED"), Some(slot), Some(to)) => Redirect::Moved(slot, to),
            (Some("ASK"), Some(_), Some(to)) => Redirect::Ask(to),
            _ => Redirect::Later,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_read() {
        let asked = Address::new("asked", 1);
        let of = |text| Redirect::of(&trouble::of_text(text), &asked);
        let slot = Slot::new(3_999).unwrap();
        let to = Address::new("10.0.0.1", 7);
        assert_eq!(
            of("MOVED 3999 10.0.0.1:7"),
            Some(Redirect::Moved(slot, to.clone()))
        );
        assert_eq!(
            of("MOVED 3999 :7"),
            Some(Redirect::Moved(slot, Address::new("asked", 7)))
        );
        assert_eq!(of("ASK 3999 10.0.0.1:7"), Some(Redirect::Ask(to)));
        for later in [
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "CLUSTERDOWN Hash slot not served",
            "MOVED 16384 h:7",
            "MOVED",
            "ASK 3999 h",
        ] {
            assert_eq!(of(later), Some(Redirect::Later), "{later}");
        }
        assert_eq!(of("ERR something else"), None);
    }
}
