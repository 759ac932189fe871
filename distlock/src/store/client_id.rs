//! The id of a client in its store.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::protocol::messages::OwnerId;
use crate::util::mutex::lock;
use crate::util::process::ProcessId;
use crate::util::random::Random;

/// The id of a client in the store: 24 hex digits for the process, 8 for the manager.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientId(std::sync::Arc<str>);

impl ClientId {
    pub(crate) fn new(random: &dyn Random) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self::from_str(&format!("{}{number:08x}", PROCESS_IDS.latest(random)))
    }

    /// Wraps an id that the store returned.
    pub(crate) fn from_str(id: &str) -> Self {
        ClientId(id.into())
    }

    /// Returns another id for the same client, which no copy of this process has. A machine that
    /// was cloned while it ran has the same memory as its clones.
    pub(crate) fn regenerate(&self, random: &dyn Random) -> Self {
        let (_, number) = self.0.split_at(PROCESS_DIGITS);
        Self::from_str(&format!("{}{number}", PROCESS_IDS.regenerate(random)))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses an owner in the store. Returns true if it is of this process, and its number if it is
    /// of this client.
    pub(crate) fn recognize(&self, owner: &str) -> (bool, Option<OwnerId>) {
        let Some((client, number)) = owner.split_once(':') else {
            return (false, None);
        };
        let process = client.get(..PROCESS_DIGITS);
        let this_process = process == self.0.get(..PROCESS_DIGITS)
            || process.is_some_and(|id| PROCESS_IDS.is_known(id));
        let is_local = client == &*self.0;
        let local_owner = is_local.then(|| parse_number(number).map(OwnerId));
        (this_process, local_owner.flatten())
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

/// The digits of a client id that identify its process.
const PROCESS_DIGITS: usize = 24;

static PROCESS_IDS: ProcessIds = ProcessIds(Mutex::new(Vec::new()));

/// The ids of this process, oldest first. A client whose id was not regenerated has an older one.
/// Those that a process that `fork` made has copied are its parent's.
#[derive(Debug)]
struct ProcessIds(Mutex<Vec<(ProcessId, String)>>);

/// Upper limit of remembered ids, by which holders of this process are recognized.
const MAX_PROCESS_IDS: usize = 1_000;

impl ProcessIds {
    fn latest(&self, random: &dyn Random) -> String {
        let latest = lock(&self.0).last().cloned();
        let own = latest.filter(|(process, _)| !process.is_inherited());
        own.map_or_else(|| self.regenerate(random), |(_, id)| id)
    }

    fn regenerate(&self, random: &dyn Random) -> String {
        let id = random_id(random);
        let mut ids = lock(&self.0);
        if ids.len() == MAX_PROCESS_IDS {
            ids.remove(0);
        }
        ids.push((ProcessId::current(), id.clone()));
        id
    }

    fn is_known(&self, id: &str) -> bool {
        let is_own =
            |(process, known): &(ProcessId, String)| known == id && !process.is_inherited();
        lock(&self.0).iter().any(is_own)
    }
}

fn random_id(random: &dyn Random) -> String {
    let text = format!("{:016x}{:016x}", random.fresh(), random.fresh());
    text[..PROCESS_DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::random::SystemRandom;

    #[test]
    fn a_client_with_another_id_is_of_the_same_process() {
        let (client, other) = (ClientId::new(&SystemRandom), ClientId::new(&SystemRandom));
        let regenerated = client.regenerate(&SystemRandom);
        assert_ne!(regenerated, client);
        let owner = |client: &ClientId| format!("{}:7", client.as_str());
        assert_eq!(
            regenerated.recognize(&owner(&regenerated)),
            (true, Some(OwnerId(7)))
        );
        assert_eq!(regenerated.recognize(&owner(&client)), (true, None));
        assert_eq!(regenerated.recognize(&owner(&other)), (true, None));
        assert_eq!(regenerated.recognize("00ff:7"), (false, None));
        let known = ProcessIds(Mutex::default());
        let first = known.latest(&SystemRandom);
        assert_eq!(known.latest(&SystemRandom), first);
        let second = known.regenerate(&SystemRandom);
        assert!(first != second && known.is_known(&first) && known.is_known(&second));
        assert_eq!(known.latest(&SystemRandom), second);
        for _ in 1..MAX_PROCESS_IDS {
            known.regenerate(&SystemRandom);
        }
        assert!(!known.is_known(&first) && known.is_known(&second));
    }
}
