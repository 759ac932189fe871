//! The first word of a reply that is a list, and of the reply to a release.

/// What a script did. `lua/` uses the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The owner is queued.
    Queued,
    /// The owner is queued behind more dead waiters than one script removes.
    Unfinished,
    /// Others hold the lock or wait for it, and the command does not wait.
    Busy,
    /// The queue is full.
    Full,
    /// The command came after its apply deadline.
    Late,
    /// The lock is in use as another kind.
    OtherKind,
    /// The owner holds the lock, and the last call that was granted had another limit.
    OtherNumber,
    /// The work has succeeded before, or there is a foreign value in place of its record.
    Ran,
    /// The owner holds the lock for the full lease.
    Held,
    /// The lock is not the owner's.
    NotHeld,
    /// The owner held the lock, and has released it.
    Released,
}

impl Status {
    /// All words. Each has one meaning.
    const WORDS: [(&str, Status); 11] = [
        ("queued", Status::Queued),
        ("unfinished", Status::Unfinished),
        ("busy", Status::Busy),
        ("full", Status::Full),
        ("late", Status::Late),
        ("other_kind", Status::OtherKind),
        ("other_number", Status::OtherNumber),
        ("ran", Status::Ran),
        ("held", Status::Held),
        ("not_held", Status::NotHeld),
        ("released", Status::Released),
    ];

    pub(crate) fn parse(word: &str) -> Option<Self> {
        let mut words = Self::WORDS.iter();
        words
            .find(|(known, _)| *known == word)
            .map(|(_, status)| *status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::scripts::{FRAGMENTS, SOURCES};

    /// The words at these places of a script.
    fn words<'a>(source: &'a str, before: &[&'static str]) -> Vec<&'a str> {
        let quoted = before.iter().flat_map(|place| source.split(place).skip(1));
        let words = quoted.filter_map(|rest| rest.split(['\'', ' ']).next());
        let is_word = |word: &&str| {
            word.len() > 1 && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        };
        words.filter(is_word).collect()
    }

    #[test]
    fn scripts_and_client_use_the_same_words() {
        let all = SOURCES.iter().map(|(.., (_, source))| *source);
        let sources: Vec<_> = all
            .chain(FRAGMENTS.iter().map(|(_, source)| *source))
            .collect();
        let all_words = |before: &[&'static str]| -> Vec<_> {
            sources
                .iter()
                .flat_map(|source| words(source, before))
                .collect()
        };
        // A script also returns words, and chooses one of two.
        let used = all_words(&["{ '", "refusal = '", "return '", "and '", "or '"]);
        for (word, status) in Status::WORDS {
            assert_eq!(Status::parse(word), Some(status));
            assert!(used.contains(&word), "no script replies with {word}");
        }
        for word in all_words(&["{ '", "refusal = '", "and '"]) {
            assert!(
                Status::parse(word).is_some(),
                "the client does not know {word}"
            );
        }
    }
}
