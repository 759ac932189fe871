//! What `distlock doctor` asks of the servers. Not public API: it changes without notice.

use std::time::Duration;

use crate::error::Error;
use crate::manager::LockManager;
pub use crate::store::facts::{Facts, Part};

/// How long one question may take.
const EACH_WITHIN: Duration = Duration::from_secs(1);

/// What each server says about itself. One that cannot be reached says why.
///
/// # Errors
///
/// [`Error::ShutDown`], and [`Error::Unavailable`] if it is not even known which servers there are.
pub async fn facts(manager: &LockManager) -> Result<Vec<Facts>, Error> {
    let facts = manager.at_home(|core| async move {
        let facts = core.store.facts(EACH_WITHIN).await;
        facts.map_err(|trouble| trouble.into_error(None, Duration::ZERO))
    });
    facts.await
}

/// The address of the store.
#[must_use]
pub fn address(manager: &LockManager) -> &str {
    manager.address().unwrap_or("memory:")
}
