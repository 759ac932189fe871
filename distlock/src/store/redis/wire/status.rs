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
    use crate::store::redis::wire::scripts::SOURCES;

    /// The words at the start of the replies of a script.
    fn words(source: &str) -> impl Iterator<Item = &str> {
        let starts = ["{ '", "refused('", "return '", "and '", "or '"];
        let quoted = starts
            .into_iter()
            .flat_map(|start| source.split(start).skip(1));
        let words = quoted.filter_map(|rest| rest.split(['\'', ' ']).next());
        words.filter(|word| {
            word.len() > 1 && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        })
    }

    #[test]
    fn scripts_and_client_use_the_same_words() {
        let all = SOURCES.iter().map(|(.., (_, source))| *source);
        let fragments = crate::store::redis::wire::scripts::FRAGMENTS.iter();
        let sources: Vec<_> = all.chain(fragments.map(|(_, source)| *source)).collect();
        for (word, status) in Status::WORDS {
            assert_eq!(Status::parse(word), Some(status));
            let is_used = sources
                .iter()
                .any(|source| words(source).any(|used| used == word));
            assert!(is_used, "no script replies with {word}");
        }
    }
}
