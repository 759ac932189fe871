//! What locks over several independent servers cannot do.

use std::time::Duration;

use crate::protocol::rules::rule;
use crate::store::Capabilities;

/// Returns the capabilities of a quorum. A server that may have forgotten a longer lease would grant
/// the lock to another client.
pub(crate) fn of_quorum(max_lease: Duration) -> Capabilities {
    Capabilities {
        max_lease: Some(max_lease),
        durability_unavailable: Some(
            "the servers of a quorum are independent (set `appendonly yes` and `appendfsync always` on each \
             instead)",
        ),
        only_mutex: Some(
            "each server of a quorum would admit other holders, and more of them than the lock allows; use \
             `lock`, or a single server or a cluster",
        ),
        records_unavailable: rule!(no_quorum_records).then_some(
            "a restarted server of a quorum may have forgotten the success, and would let the work run again; \
             use a single server or a cluster, or keep the record next to the data",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::options::Options;
    use crate::error::LockKind;

    #[test]
    fn a_quorum_records_no_success() {
        let second = Duration::from_secs(1);
        let per = Options {
            once_per: Some(second),
            ..Options::default()
        };
        let for_value = Options {
            once_for: Some(Ok("value".into())),
            ..Options::default()
        };
        for options in [per, for_value] {
            let quorum = of_quorum(second * 60).check(LockKind::Mutex, &options);
            assert!(quorum.is_err_and(|error| error.contains("once_per")));
            assert_eq!(
                Capabilities::MEMORY.check(LockKind::Mutex, &options),
                Ok(())
            );
            assert_eq!(
                Capabilities::default().check(LockKind::Mutex, &options),
                Ok(())
            );
        }
    }
}
