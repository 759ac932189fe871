//! Candidates as processes, and what the journal says of those who led.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_tests::{RedisServer, Resp, Worker};

/// For whatever is waited for here, on a loaded machine.
const SOON: Duration = Duration::from_secs(60);

const GROUP: &str = "test";

/// One leader's entries in the journal, by the server's clock.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) leader: String,
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
    pub(crate) last_words: String,
    pub(crate) token: u64,
    entries: usize,
}

pub(crate) struct Candidates {
    workers: BTreeMap<String, Worker>,
    client: Resp,
    url: String,
}

impl Candidates {
    pub(crate) fn start(server: &RedisServer, names: &[&str]) -> Self {
        let start = |name: &&str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_leader"));
            command
                .args(["--group", GROUP, "--name", name])
                .env("DISTLOCK_URL", server.url());
            ((*name).to_owned(), Worker::spawn(&mut command))
        };
        let workers: BTreeMap<_, _> = names.iter().map(start).collect();
        let mut candidates = Candidates {
            client: server.client(),
            url: server.url(),
            workers,
        };
        candidates.until_waiting(names.len() as i64 - 1);
        candidates
    }

    /// Who led, one after the other; never two at once, for then an older token would come after a newer one, or be refused.
    #[track_caller]
    fn terms(&mut self) -> Vec<Term> {
        let key = format!("leader:{{{GROUP}}}:journal");
        let journal = self.client.cmd(&["LRANGE", &key, "0", "-1"]);
        let mut terms: Vec<Term> = Vec::new();
        for entry in journal.array() {
            let entry = entry.text().unwrap();
            let words: Vec<_> = entry.split(' ').collect();
            let [at, token, leader, what] = words[..] else {
                panic!("`{entry}` is no entry");
            };
            assert_ne!(what, "refused", "{entry}: two led at once: {terms:?}");
            let at = Duration::from_micros(at.parse().unwrap());
            let token = token.parse().unwrap();
            match terms.last_mut() {
                Some(term) if term.token == token => {
                    assert_eq!(term.leader, leader, "two have a token: {entry}");
                    term.ended = at;
                    term.last_words = what.to_owned();
                    term.entries += 1;
                    continue;
                }
                Some(term) => assert!(term.token < token, "two led at once: {entry}, {terms:?}"),
                None => {}
            }
            assert_eq!(what, "leads", "{entry}");
            terms.push(Term {
                leader: leader.to_owned(),
                began: at,
                ended: at,
                last_words: what.to_owned(),
                token,
                entries: 1,
            });
        }
        terms
    }

    /// Waits until somebody leads after `than`, with some entries.
    #[track_caller]
    pub(crate) fn until_led(&mut self, than: Option<&Term>) -> Term {
        let than = than.map_or(0, |term| term.token);
        let until = Instant::now() + SOON;
        loop {
            let terms = self.terms();
            let mut later = terms.iter().filter(|term| term.token > than);
            if let Some(term) = later.find(|term| term.entries >= 5) {
                return term.clone();
            }
            assert!(Instant::now() < until, "not within {SOON:?}: {terms:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until so many stand in line.
    #[track_caller]
    pub(crate) fn until_waiting(&mut self, count: i64) {
        let queue = format!("distlock:queue:{{leader:{GROUP}}}");
        distlock_tests::eventually(SOON, || self.client.cmd(&["ZCARD", &queue]).int() == count);
    }

    /// Whose the lock is.
    pub(crate) fn holder(&mut self) -> Option<String> {
        let lock = self
            .client
            .get(&format!("distlock:lock:{{leader:{GROUP}}}"))?;
        Some(lock.rsplit(' ').next()?.to_owned())
    }

    pub(crate) fn freeze(&mut self, name: &str) {
        self.workers.get_mut(name).unwrap().stop_process();
    }

    pub(crate) fn thaw(&mut self, name: &str) {
        self.workers.get_mut(name).unwrap().cont_process();
    }

    pub(crate) fn kill(&mut self, name: &str) {
        self.workers.remove(name).unwrap().kill();
    }

    pub(crate) fn terminate(&mut self, name: &str) {
        let mut worker = self.workers.remove(name).unwrap();
        assert!(worker.terminate(SOON).success());
    }

    /// What `distlock unlock` does.
    pub(crate) fn unlock(&self) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let locks = LockManager::connect(&self.url).await.unwrap();
            locks.unlock(format!("leader:{GROUP}")).await.unwrap();
            locks.shutdown().await;
        });
    }

    /// Ends all that are left: who led.
    #[track_caller]
    pub(crate) fn end(mut self) -> Vec<Term> {
        for worker in self.workers.values_mut() {
            assert!(worker.terminate(SOON).success());
        }
        self.terms()
    }
}

/// The term with this token, and the one after it.
#[track_caller]
pub(crate) fn with_successor(terms: &[Term], token: u64) -> [&Term; 2] {
    let mut pairs = terms.windows(2).map(|pair| [&pair[0], &pair[1]]);
    let pair = pairs.find(|[term, _]| term.token == token);
    pair.unwrap_or_else(|| panic!("token {token} has no successor: {terms:?}"))
}
