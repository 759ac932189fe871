//! Limits that a store sets to the options of its locks.

use std::time::Duration;

use crate::config::options::{Durability, Options};
use crate::error::LockKind;

/// The limits of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    /// Upper limit of leases and of `min_hold`.
    pub(crate) max_lease: Option<Duration>,
    /// The reason why `min_replicas` and `fsync` are not available; `None` if they are.
    pub(crate) durability_unavailable: Option<&'static str>,
    /// The reason why only mutexes are available; `None` if all kinds are.
    pub(crate) only_mutex: Option<&'static str>,
    /// The reason why success records are not available; `None` if they are.
    pub(crate) records_unavailable: Option<&'static str>,
}

impl Limits {
    /// The limits of the memory store.
    pub(crate) const MEMORY: Limits = Limits {
        max_lease: None,
        durability_unavailable: Some("the memory store has neither replicas nor a disk"),
        only_mutex: None,
        records_unavailable: None,
    };

    /// Checks the kind and the options of a lock. The error says what to change.
    pub(crate) fn check(&self, kind: LockKind, options: &Options) -> Result<(), String> {
        if let Some(reason) = self.only_mutex.filter(|_| kind != LockKind::Mutex) {
            return Err(format!(
                "semaphores and readers-writer locks are not available: {reason}"
            ));
        }
        if let Some(reason) = self.records_unavailable.filter(|_| options.is_once()) {
            return Err(format!(
                "`once_per` and `once_for` are not available: {reason}"
            ));
        }
        self.check_durability(options.durability())?;
        let Some(max_lease) = self.max_lease else {
            return Ok(());
        };
        let values = [
            ("the lease", Some(options.lease())),
            ("min_hold", options.min_hold),
        ];
        for (name, value) in values {
            if let Some(value) = value.filter(|value| *value > max_lease) {
                return Err(format!(
                    "{name} is {value:?}, but a server that may have lost the lock grants locks again after {max_lease:?}; \
                     lower it to that, or raise `Quorum::max_lease` in all clients of the quorum"
                ));
            }
        }
        Ok(())
    }

    /// Checks the durability that a lock, or every lock of a manager, requires.
    pub(crate) fn check_durability(&self, durability: Durability) -> Result<(), String> {
        match self.durability_unavailable {
            Some(reason) if !durability.is_none() => Err(format!(
                "`min_replicas` or `fsync` is set, but {reason}; remove both settings"
            )),
            _ => Ok(()),
        }
    }
}
