//! Whether the success of the command is recorded.

use std::sync::{Arc, Mutex, PoisonError};

use distlock::observer::{Event, Observer, RecordOutcome};

use crate::output::table::printable;

/// Receives whether the success is recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordWatcher(Arc<Mutex<Option<RecordOutcome>>>);

impl RecordWatcher {
    /// Returns the text for a success that is not, or may not be, recorded.
    pub(super) fn warning(&self, key: &str) -> Option<String> {
        let outcome = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = match outcome? {
            RecordOutcome::Recorded => return None,
            RecordOutcome::Refused => {
                "not recorded: the store rejected the record, or the lock was lost"
            }
            _ => "perhaps not recorded: no reply of the store shows it",
        };
        let text = format!(
            "success of lock `{key}` {text}, so the command may run again; check the store with `distlock doctor`"
        );
        Some(printable(&text))
    }
}

impl Observer for RecordWatcher {
    fn observe(&self, event: &Event) {
        if let Event::SuccessRecorded { outcome, .. } = event {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(*outcome);
        }
    }
}
