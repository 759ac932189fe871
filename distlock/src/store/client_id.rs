//! The name of a client in its store.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::protocol::messages::Owner;
use crate::util::mutex::lock;
use crate::util::random::Random;

/// The name of a client in the store: 24 hex digits for the process, 8 for the manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientId(std::sync::Arc<str>);

impl ClientId {
    pub(crate) fn new(random: &dyn Random) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self::named(&format!("{}{number:08x}", PROCESS_NAMES.latest(random)))
    }

    /// Returns the id for a name as the store has it.
    pub(crate) fn named(name: &str) -> Self {
        ClientId(name.into())
    }

    /// Returns another name for the same client, which no copy of this process has. A machine that
    /// was cloned while it ran has the same memory as its clones.
    pub(crate) fn renamed(&self, random: &dyn Random) -> Self {
        let (_, number) = self.0.split_at(PROCESS_DIGITS);
        Self::named(&format!("{}{number}", PROCESS_NAMES.rename(random)))
    }

    /// Returns the name of a client that receives no pushes and checks its queues instead. It is
    /// one digit longer, by which the store knows that the client does not listen.
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

    /// Parses an owner in the store. Returns true if it is of this process, and its number if it is
    /// of this client.
    pub(crate) fn recognize(&self, owner: &str) -> (bool, Option<Owner>) {
        let Some((client, number)) = owner.split_once(':') else {
            return (false, None);
        };
        let process = client.get(..PROCESS_DIGITS);
        let this_process = process == self.0.get(..PROCESS_DIGITS)
            || process.is_some_and(|name| PROCESS_NAMES.is_known(name));
        let ours = (client == &*self.0).then(|| parse_number(number)).flatten();
        (this_process, ours)
    }
}

/// Parses a number of a store. Rejects `+7` and `07`: otherwise one owner would have several names.
pub(crate) fn parse_number(text: &str) -> Option<u64> {
    let plain = match text.as_bytes() {
        [b'0'] => true,
        [first, ..] => (b'1'..=b'9').contains(first),
        [] => false,
    };
    plain.then(|| text.parse().ok()).flatten()
}

/// The digits of a client's name that identify its process.
const PROCESS_DIGITS: usize = 24;

const MANAGER_DIGITS: usize = 8;

/// The names of this process, oldest first. Clients that were not renamed still have an older one.
static PROCESS_NAMES: ProcessNames = ProcessNames(Mutex::new(Vec::new()));

#[derive(Debug)]
struct ProcessNames(Mutex<Vec<String>>);

/// Upper limit of remembered names, by which holders of this process are recognized.
const MAX_PROCESS_NAMES: usize = 1_000;

impl ProcessNames {
    fn latest(&self, random: &dyn Random) -> String {
        let latest = lock(&self.0).last().cloned();
        latest.unwrap_or_else(|| self.rename(random))
    }

    fn rename(&self, random: &dyn Random) -> String {
        let name = random_name(random);
        let mut names = lock(&self.0);
        if names.len() == MAX_PROCESS_NAMES {
            names.remove(0);
        }
        names.push(name.clone());
        name
    }

    fn is_known(&self, name: &str) -> bool {
        lock(&self.0).iter().any(|known| known == name)
    }
}

fn random_name(random: &dyn Random) -> String {
    let text = format!("{:016x}{:016x}", random.fresh(), random.fresh());
    text[..PROCESS_DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::random::SystemRandom;

    #[test]
    fn a_renamed_client_is_of_the_same_process() {
        let (client, other) = (ClientId::new(&SystemRandom), ClientId::new(&SystemRandom));
        let renamed = client.renamed(&SystemRandom);
        assert_ne!(renamed, client);
        let owner = |client: &ClientId| format!("{}:7", client.as_str());
        assert_eq!(renamed.recognize(&owner(&renamed)), (true, Some(7)));
        assert_eq!(renamed.recognize(&owner(&client)), (true, None));
        assert_eq!(renamed.recognize(&owner(&other)), (true, None));
        assert_eq!(renamed.recognize("00ff:7"), (false, None));
        let known = ProcessNames(Mutex::new(Vec::new()));
        let first = known.latest(&SystemRandom);
        assert_eq!(known.latest(&SystemRandom), first);
        let second = known.rename(&SystemRandom);
        assert!(first != second && known.is_known(&first) && known.is_known(&second));
        assert_eq!(known.latest(&SystemRandom), second);
        for _ in 1..MAX_PROCESS_NAMES {
            known.rename(&SystemRandom);
        }
        assert!(!known.is_known(&first) && known.is_known(&second));
    }
}
