//! The names of locks whose first skip was logged.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::observer::labels::MAX_NAMES;
use crate::util::mutex::lock;

/// The names of locks with a skipped call.
#[derive(Debug, Default)]
pub(crate) struct Skips {
    names: Mutex<BTreeSet<String>>,
}

impl Skips {
    /// Records a skip. Returns true if it is the first one of the name, for the first
    /// [`MAX_NAMES`] names.
    pub(crate) fn record(&self, name: &str) -> bool {
        let mut names = lock(&self.names);
        names.len() < MAX_NAMES && !names.contains(name) && names.insert(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_skip_of_a_name_is_recorded_once_and_for_a_limited_number_of_names() {
        let skips = Skips::default();
        for n in 0..MAX_NAMES {
            let name = format!("job:{n}");
            assert!(skips.record(&name), "{name}");
            assert!(!skips.record(&name), "{name}");
        }
        assert!(!skips.record("one too many"));
        assert_eq!(lock(&skips.names).len(), MAX_NAMES);
    }
}
