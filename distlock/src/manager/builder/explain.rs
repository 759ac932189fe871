//! The explanation of a connect that failed.

use crate::error::{Error, with_remedy};

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

/// Returns the error of a connect, with the places where the user has set what it mentions.
pub(crate) fn explain(mut error: Error, origins: &Origins) -> Error {
    match &mut error {
        Error::Config { detail } => *detail = origins.name_in(std::mem::take(detail)),
        Error::Unavailable { outage, detail, .. } => {
            *detail = origins.name_in(with_remedy(*outage, detail));
        }
        _ => {}
    }
    error
}
