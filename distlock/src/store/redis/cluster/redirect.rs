//! Replies of a node that does not execute a command.

use crate::protocol::store_error::{Code, StoreError};
use crate::store::redis::cluster::slot_map::Address;
use crate::store::redis::cluster::slots::Slot;

/// Why a node has not executed a command, and which node may.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The slot belongs to another node.
    Moved(Slot, Address),
    /// The slot is migrating to another node, and the key is there already.
    Ask(Address),
    /// The slot is migrating, or no node has it.
    Later,
}

impl Redirect {
    pub(super) fn from_error(error: &StoreError, queried: &Address) -> Option<Self> {
        let redirect = match &error.code {
            Code::Moved(to) => to.as_ref().and_then(|(slot, to)| {
                let (slot, to) = (Slot::new(*slot)?, Address::parse(to, queried)?);
                Some(Redirect::Moved(slot, to))
            }),
            Code::Ask(to) => {
                let to = to.as_ref().and_then(|to| Address::parse(to, queried));
                to.map(Redirect::Ask)
            }
            Code::TryAgain => None,
            _ => return None,
        };
        Some(redirect.unwrap_or(Redirect::Later))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::errors;

    #[test]
    fn redirects_are_parsed() {
        let queried = Address::new("asked", 1);
        let of = |text| Redirect::from_error(&errors::classify_text(text), &queried);
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
