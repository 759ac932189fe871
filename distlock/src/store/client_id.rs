//! The id of a client in its store, and the name of its holds there.

use std::borrow::Cow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::protocol::messages::OwnerId;
use crate::protocol::store_error::one_line;
use crate::util::random::{Random, SystemRandom};
use crate::util::sync::lock;

/// The id of a client in the store: 24 hex digits for the process, 8 for the manager.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientId(std::sync::Arc<str>);

impl ClientId {
    /// The process's part is of the system's random numbers, because the first client of a process
    /// draws it for all: with a client's own source, that one client would differ from the others.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self::from_str(&format!("{}{number:08x}", PROCESS_IDS.latest()))
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
    fn latest(&self) -> String {
        let latest = lock(&self.0).last().cloned();
        let own = latest.filter(|(process, _)| !process.is_inherited());
        own.map_or_else(|| self.regenerate(&SystemRandom), |(_, id)| id)
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

/// A process id. A process that `fork` made has a copy of its parent's memory, but neither the
/// threads of the parent nor a right to its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId(u32);

impl ProcessId {
    pub(crate) fn current() -> Self {
        ProcessId(std::process::id())
    }

    /// Returns true if the value was created by another process, whose memory this one copied.
    pub(crate) fn is_inherited(self) -> bool {
        self != Self::current()
    }
}

/// Separates the name of a client from the metadata of its hold. Neither contains a control
/// character.
const SEPARATOR: char = '\u{1f}';

/// Returns the name of a holder for the store, where the scripts treat it as one opaque text.
/// Without metadata it is the client's name. A separator in front says that the store cannot see
/// whether the client is alive, because of a proxy.
pub(crate) fn join_name<'a>(
    client: &'a str,
    metadata: Option<&str>,
    is_proxied: bool,
) -> Cow<'a, str> {
    let start = if is_proxied { "\u{1f}" } else { "" };
    match metadata {
        None if !is_proxied => Cow::Borrowed(client),
        None => Cow::Owned(format!("{start}{client}")),
        Some(metadata) => Cow::Owned(format!("{start}{client}{SEPARATOR}{metadata}")),
    }
}

/// Returns the client's name and the metadata.
pub(crate) fn split_name(name: &str) -> (String, Option<String>) {
    let clean = |text: &str| one_line(text.to_owned());
    let name = name.strip_prefix(SEPARATOR).unwrap_or(name);
    match name.split_once(SEPARATOR) {
        None => (clean(name), None),
        Some((client, metadata)) => (clean(client), Some(clean(metadata))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_with_another_id_is_of_the_same_process() {
        let (client, other) = (ClientId::new(), ClientId::new());
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
        let first = known.latest();
        assert_eq!(known.latest(), first);
        let second = known.regenerate(&SystemRandom);
        assert!(first != second && known.is_known(&first) && known.is_known(&second));
        assert_eq!(known.latest(), second);
        for _ in 1..MAX_PROCESS_IDS {
            known.regenerate(&SystemRandom);
        }
        assert!(!known.is_known(&first) && known.is_known(&second));
    }

    #[test]
    fn a_name_without_metadata_is_the_clients() {
        assert_eq!(join_name("host:7", None, false), "host:7");
        assert_eq!(split_name("host:7"), ("host:7".into(), None));
        assert_eq!(split_name("a b\nc"), ("a b c".into(), None));
        let proxied = join_name("host:7", None, true);
        assert_ne!(proxied, "host:7");
        assert_eq!(split_name(&proxied), ("host:7".into(), None));
    }

    #[test]
    fn metadata_returns_as_it_was_and_without_control_characters() {
        for metadata in ["import 42", "ünïcode \u{3000} text", "a:b {c} %d"] {
            for is_proxied in [false, true] {
                let name = join_name("host:7", Some(metadata), is_proxied);
                assert_eq!(split_name(&name), ("host:7".into(), Some(metadata.into())));
            }
        }
        let foreign = split_name("host:7\u{1f}a\u{1f}b\u{202e}c");
        assert_eq!(foreign, ("host:7".into(), Some("a b c".into())));
    }
}
