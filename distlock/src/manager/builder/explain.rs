//! The explanation of a connect that failed.

use crate::error::{Error, Outage, with_remedy};
use crate::store::redis::transport::config::RedisConfig;
use crate::store::redis::transport::silence;

/// The names under which the user has set what errors mention, such as an environment variable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins(Vec<(&'static str, String)>);

impl Origins {
    /// Names the origin of what errors call `words`. Longer words come before their parts.
    pub(crate) fn add(&mut self, words: &'static str, name: impl Into<String>) {
        self.0.push((words, name.into()));
    }

    fn name_in(&self, text: String) -> String {
        let name = |text: String, (words, name): &(&str, String)| text.replace(words, name);
        self.0.iter().fold(text, name)
    }
}

/// Returns the error of a connect, after its last attempt. It says what the attempts did not know:
/// what listens at the address, and where the user has set a value.
pub(crate) async fn explain(
    mut error: Error,
    config: Option<&RedisConfig>,
    origins: &Origins,
) -> Error {
    match &mut error {
        Error::Config { detail } => *detail = origins.name_in(std::mem::take(detail)),
        Error::Unavailable { outage, detail, .. } => {
            if let Some(config) = config
                && matches!(
                    outage,
                    Outage::Unreachable | Outage::TimedOut | Outage::Other
                )
                && let Some(found) = silence::explain(config).await
            {
                *detail = format!("{detail}: {found}");
            }
            *detail = origins.name_in(with_remedy(*outage, detail));
        }
        _ => {}
    }
    error
}
