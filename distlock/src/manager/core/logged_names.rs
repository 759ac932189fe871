//! The names of locks and keys for which a line that comes once was logged.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::observer::labels::MAX_NAMES;
use crate::util::sync::lock;

/// The names or keys of locks for which a line was logged.
#[derive(Debug, Default)]
pub(crate) struct LoggedNames {
    names: Mutex<BTreeSet<String>>,
}

impl LoggedNames {
    /// Records a name. Returns true the first time, for the first [`MAX_NAMES`] names.
    pub(crate) fn record(&self, name: &str) -> bool {
        let mut names = lock(&self.names);
        names.len() < MAX_NAMES && !names.contains(name) && names.insert(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_recorded_once_and_only_a_limited_number_of_names() {
        let logged = LoggedNames::default();
        for n in 0..MAX_NAMES {
            let name = format!("job:{n}");
            assert!(logged.record(&name), "{name}");
            assert!(!logged.record(&name), "{name}");
        }
        assert!(!logged.record("one too many"));
        assert_eq!(lock(&logged.names).len(), MAX_NAMES);
    }
}
