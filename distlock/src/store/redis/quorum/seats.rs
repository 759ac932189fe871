//! One server has one vote, whatever the names are that it is reached by: a lock at it alone would
//! be a quorum's otherwise.

use std::sync::{Arc, Mutex, Weak};

use crate::error::Outage;
use crate::protocol::trouble::Trouble;
use crate::store::redis::conn::session::End;
use crate::util::mutex::lock;

/// The servers that the members of a quorum reach at this moment.
#[derive(Debug, Default)]
pub(super) struct Seats(Mutex<Vec<Taken>>);

/// What a server calls itself for as long as it runs, and the member that it is, for as long as
/// that is connected to it.
#[derive(Debug)]
struct Taken {
    run: String,
    address: String,
    end: Weak<End>,
}

/// The place of one member.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    address: String,
    seats: Arc<Seats>,
}

impl Seat {
    pub(super) fn new(address: String, seats: &Arc<Seats>) -> Self {
        let seats = seats.clone();
        Seat { address, seats }
    }

    /// A connection of this member is being opened, to the server that calls itself so. It is
    /// refused while another member is connected to that one.
    pub(super) fn take(&self, run: Option<&str>, end: &Arc<End>) -> Result<(), Trouble> {
        let Some(run) = run else {
            return Err(Trouble::new(
                Outage::Denied,
                "the user needs INFO: it must be known whether the server was restarted, and whether it has another name",
            ));
        };
        let mut taken = lock(&self.seats.0);
        taken.retain(|one| one.end.upgrade().is_some_and(|end| !end.is_told()));
        let is_other = |one: &&Taken| one.run == run && one.address != self.address;
        if let Some(other) = taken.iter().find(is_other) {
            return Err(Trouble::new(
                Outage::Misconfigured,
                format!(
                    "it is another name of {}, and has no second vote: name independent servers",
                    other.address
                ),
            ));
        }
        taken.push(Taken {
            run: run.to_owned(),
            address: self.address.clone(),
            end: Arc::downgrade(end),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_one_seat_for_as_long_as_it_is_connected() {
        let seats = Arc::default();
        let [first, second] = ["a", "b"].map(|name| Seat::new(name.into(), &seats));
        let ends: Vec<_> = (0..3).map(|_| Arc::new(End::default())).collect();
        first.take(Some("run"), &ends[0]).unwrap();
        let refused = second.take(Some("run"), &ends[1]).unwrap_err();
        assert_eq!(refused.outage, Outage::Misconfigured);
        assert!(refused.detail.contains("another name of a,"), "{refused}");
        // Its own connections are replaced before the old ones are known to be dead.
        first.take(Some("run"), &ends[2]).unwrap();
        second.take(Some("another run"), &ends[1]).unwrap();
        ends[0].tell(Trouble::new(Outage::Unreachable, "gone"));
        assert!(second.take(Some("run"), &ends[1]).is_err());
        ends[2].tell(Trouble::new(Outage::Unreachable, "gone"));
        second.take(Some("run"), &ends[1]).unwrap();
        assert!(first.take(None, &ends[1]).is_err());
    }
}
