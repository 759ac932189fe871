//! What a client is called in its store.

use std::sync::atomic::{AtomicU32, Ordering};

use once_cell::sync::OnceCell;

use crate::protocol::words::Owner;
use crate::random::Random;

/// The name of a client in the store: 24 hex digits of the process, 8 of the manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientId(std::sync::Arc<str>);

impl ClientId {
    pub(crate) fn new(random: &dyn Random) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self::named(&format!("{}{number:08x}", process_name(random)))
    }

    /// As it stands in a store.
    pub(crate) fn named(name: &str) -> Self {
        ClientId(name.into())
    }

    /// Another name for the same client, which no copy of this process has: a machine that was cloned
    /// while it ran has the same memory as its clones.
    pub(crate) fn renewed(&self, random: &dyn Random) -> Self {
        let (_, number) = self.0.split_at(PROCESS_DIGITS);
        Self::named(&format!("{}{number}", rename_process(random)))
    }

    /// The name of a client that is told nothing by its store, and looks instead: a digit longer, by which the store
    /// knows that nobody listens for it.
    pub(crate) fn polling(&self) -> Self {
        if self.is_polling() {
            return self.clone();
        }
        Self::named(&format!("{}0", self.0))
    }

    pub(crate) fn is_polling(&self) -> bool {
        self.0.len() > PROCESS_DIGITS + MANAGER_DIGITS
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads an owner as it stands in the store: whether it is of this process, and its number if it
    /// is of this very client.
    pub(crate) fn recognise(&self, owner: &str) -> (bool, Option<Owner>) {
        let Some((client, number)) = owner.split_once(':') else {
            return (false, None);
        };
        let process = client.get(..PROCESS_DIGITS);
        let this_process = process == self.0.get(..PROCESS_DIGITS)
            || process.is_some_and(|name| PROCESS.is_known(std::process::id(), name));
        let ours = (client == &*self.0).then(|| plain_number(number)).flatten();
        (this_process, ours)
    }
}

/// A number as a store writes it: `+7` and `07` are none, or one owner would have several names.
pub(crate) fn plain_number(text: &str) -> Option<u64> {
    let plain = match text.as_bytes() {
        [b'0'] => true,
        [first, ..] => (b'1'..=b'9').contains(first),
        [] => false,
    };
    plain.then(|| text.parse().ok()).flatten()
}

/// The digits of a client's name that are its process's.
const PROCESS_DIGITS: usize = 24;

const MANAGER_DIGITS: usize = 8;

/// What this process calls itself.
static PROCESS: ProcessNames = ProcessNames(OnceCell::new());

/// The names of a process, the oldest first: clients that did not change theirs still have an older one.
/// Nothing is locked to read them, for a forked child must be able to.
#[derive(Debug)]
struct ProcessNames(OnceCell<Named>);

#[derive(Debug)]
struct Named {
    pid: u32,
    name: String,
    next: Box<ProcessNames>,
}

/// Names that are remembered, to say of a holder that it is this very process.
const REMEMBERED: usize = 1_000;

impl ProcessNames {
    fn all(&self) -> impl Iterator<Item = &Named> {
        std::iter::successors(self.0.get(), |named| named.next.0.get())
    }

    /// Drawn anew after a fork, for a child must not be taken for its parent or its siblings: it would
    /// find their locks to be its own.
    fn latest(&self, pid: u32, random: &dyn Random) -> String {
        match self.all().filter(|named| named.pid == pid).last() {
            Some(named) => named.name.clone(),
            None => self.rename(pid, random),
        }
    }

    fn rename(&self, pid: u32, random: &dyn Random) -> String {
        let name = drawn_name(random);
        if self.all().count() < REMEMBERED {
            let mut named = Named {
                pid,
                name: name.clone(),
                next: Box::new(ProcessNames(OnceCell::new())),
            };
            let mut last = self;
            // Somebody else may have been faster.
            while let Err(again) = last.0.set(named) {
                named = again;
                match last.0.get() {
                    Some(other) => last = &other.next,
                    None => break,
                }
            }
        }
        name
    }

    fn is_known(&self, pid: u32, name: &str) -> bool {
        self.all()
            .any(|named| named.pid == pid && named.name == name)
    }
}

fn process_name(random: &dyn Random) -> String {
    PROCESS.latest(std::process::id(), random)
}

fn rename_process(random: &dyn Random) -> String {
    PROCESS.rename(std::process::id(), random)
}

fn drawn_name(random: &dyn Random) -> String {
    let text = format!("{:016x}{:016x}", random.next(), random.next());
    text[..PROCESS_DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SystemRandom;

    #[test]
    fn a_forked_child_is_another_client() {
        let known = ProcessNames(OnceCell::new());
        let parent = known.latest(1, &SystemRandom);
        assert_eq!(known.latest(1, &SystemRandom), parent);
        // Both children start from what the parent knew.
        let names = [2, 3].map(|child| known.latest(child, &SystemRandom));
        assert!(names[0] != parent && names[1] != parent && names[0] != names[1]);
        assert!(known.is_known(1, &parent) && !known.is_known(2, &parent));
    }

    #[test]
    fn a_renamed_client_is_of_the_same_process() {
        let client = ClientId::new(&SystemRandom);
        let renamed = client.renewed(&SystemRandom);
        assert_ne!(renamed, client);
        let owner = |client: &ClientId| format!("{}:7", client.as_str());
        assert_eq!(renamed.recognise(&owner(&renamed)), (true, Some(7)));
        assert_eq!(renamed.recognise(&owner(&client)), (true, None));
        // Names of its own, for the process may have more than are remembered.
        let known = ProcessNames(OnceCell::new());
        let (first, second) = (
            known.latest(1, &SystemRandom),
            known.rename(1, &SystemRandom),
        );
        assert!(first != second && known.is_known(1, &first) && known.is_known(1, &second));
        assert_eq!(known.latest(1, &SystemRandom), second);
    }

    #[test]
    fn an_owner_is_recognised() {
        let (client, other) = (ClientId::new(&SystemRandom), ClientId::new(&SystemRandom));
        let owner = |client: &ClientId| format!("{}:7", client.as_str());
        assert_eq!(client.recognise(&owner(&client)), (true, Some(7)));
        assert_eq!(client.recognise(&owner(&other)), (true, None));
        assert_eq!(client.recognise("00ff:7"), (false, None));
    }
}
