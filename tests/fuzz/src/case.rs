//! One case: a server, a manager, and a few calls.

use std::collections::BTreeMap;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{Error, LockGuard, LockManager};
use futures::future::join_all;
use proptest::sample::select;

use crate::server::{Dice, Mood, Server};

/// Allowance on every bound for a busy machine.
const SLACK: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);
/// The longest that a command may take (`Timing::command_deadline`).
const COMMAND: Duration = Duration::from_secs(1);
/// Timeout of everything that must succeed.
const LONG: Duration = Duration::from_secs(10);

/// The limit of a reply, 8 MiB, and the socket buffers of both sides. The receiver's may grow to 32
/// MiB by default (`tcp_rmem`). A client without a limit is sent twice as much.
const MAX_ACCEPTED: usize = 64 << 20;
/// Limit of an error's text, its sources and their `{:?}`.
const MAX_SHOWN: usize = 2_500;

/// Number of occurrences by event.
pub(crate) type Tally = BTreeMap<&'static str, u64>;

/// Adds a tally to another.
pub(crate) fn add(total: &mut Tally, other: Tally) {
    for (what, count) in other {
        *total.entry(what).or_default() += count;
    }
}

/// One hold, or one call for it.
#[derive(Clone, Copy, Debug)]
struct Plan {
    key: &'static str,
    lease: Duration,
    wait: Duration,
    hold: Duration,
}

/// The lock held when the garbage begins. Every renewal gets garbage.
const HELD_BEFORE: Plan = Plan {
    key: "held",
    lease: Duration::from_millis(400),
    wait: LONG,
    hold: Duration::from_millis(700),
};

/// Runs the case of a seed. Returns an error if the manager violates a rule.
pub(crate) async fn run(seed: u64) -> Result<Tally, String> {
    let panics = panics();
    let mut dice = Dice::new(!seed);
    let case = Case {
        mood: Mood::drawn(seed, &mut dice),
        server: Server::start(seed),
    };
    let ms = Duration::from_millis;
    let calls: Vec<Plan> = (0..dice.draw(1..5usize))
        .map(|_| Plan {
            key: dice.draw(select(vec!["a", "b", "c"])),
            lease: ms(dice.draw(select(vec![50, 120, 400]))),
            wait: ms(dice.draw(select(vec![0, 1, 50, 150, 700]))),
            hold: ms(dice.draw(select(vec![0, 20, 150, 300]))),
        })
        .collect();
    let connects_before = dice.percent(70);
    let mut result = case.converse(connects_before, &calls).await;
    let server = &case.server;
    if let Some(call) = server.zero() {
        result = Err(format!("a TTL of zero: {call}"));
    }
    if server.impostor.most_sent() > MAX_ACCEPTED {
        result = Err(format!("accepted {} bytes", server.impostor.most_sent()));
    }
    if self::panics() != panics {
        result = Err("a thread of this case, or of one that ran next to it, panicked".into());
    }
    result.map_err(|why| format!("seed {seed}: {why}; {:?}", case.mood))
}

/// Returns how many panics there were on any thread, counted from the first call on.
fn panics() -> u64 {
    static PANICS: AtomicU64 = AtomicU64::new(0);
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::AcqRel);
            usual(info);
        }));
    });
    PANICS.load(Ordering::Acquire)
}

struct Case {
    server: Server,
    mood: Mood,
}

impl Case {
    /// Runs an honest server, garbage, and an honest server again.
    async fn converse(&self, connects_before: bool, calls: &[Plan]) -> Result<Tally, String> {
        let mut tally = Tally::from([("cases", 1)]);
        let mut manager = None;
        let mut guard = None;
        if connects_before {
            let connected = Self::honestly(|| self.connect(LONG)).await?;
            let lock = connected.lock(HELD_BEFORE.key).wait(HELD_BEFORE.wait);
            let lock = lock.lease(HELD_BEFORE.lease);
            guard = Some(Self::honestly(|| lock.acquire()).await?);
            manager = Some(connected);
        }
        self.server.mood(self.mood.clone());
        if !connects_before {
            manager =
                match within("connecting", CONNECT_TIMEOUT, self.connect(CONNECT_TIMEOUT)).await? {
                    Ok(manager) => Some(manager),
                    Err(error) => {
                        tally.insert("unconnected", 1);
                        check(&error)?;
                        None
                    }
                };
        }
        if let Some(manager) = &manager {
            let held = async {
                match guard {
                    Some(guard) => self.hold(guard, HELD_BEFORE).await,
                    None => Ok(Tally::new()),
                }
            };
            let calls = join_all(calls.iter().map(|plan| self.call(manager, *plan)));
            let (held, calls) = tokio::join!(held, calls);
            for outcome in calls.into_iter().chain([held]) {
                add(&mut tally, outcome?);
            }
            match within("an inspection", COMMAND, manager.inspect("a")).await? {
                Err(error) => check(&error)?,
                Ok(lock) if self.says_nothing() => return Err(format!("an inspection: {lock:?}")),
                Ok(_) => {}
            }
        }
        self.server.mood(Mood::Honest);
        let manager = match manager {
            Some(manager) => manager,
            None => Self::honestly(|| self.connect(LONG)).await?,
        };
        Self::honestly(|| async {
            let guard = manager.lock("a").wait(LONG).acquire().await?;
            guard.release().await
        })
        .await?;
        // Bodies have ended; releases have two seconds.
        within("a shutdown", 2 * COMMAND, manager.shutdown()).await?;
        tally.insert("renewals", self.server.renewals());
        Ok(tally)
    }

    /// Returns true if no reply of the server contains the state of a lock.
    fn says_nothing(&self) -> bool {
        matches!(self.mood, Mood::Same { .. })
    }

    async fn connect(&self, timeout: Duration) -> Result<LockManager, Error> {
        let builder = LockManager::builder();
        builder
            .connect_timeout(timeout)
            .connect(&self.server.impostor.url())
            .await
    }

    /// Repeats a call that succeeds while the server is honest. Until the connection is replaced, a
    /// call may get the rest of the garbage, and the machine may be too busy.
    async fn honestly<T, F>(call: impl Fn() -> F) -> Result<T, String>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let end = Instant::now() + 2 * LONG;
        loop {
            match within("a call to an honest server", LONG, call()).await? {
                Ok(value) => return Ok(value),
                Err(error) if error.is_unavailable() && Instant::now() < end => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => return Err(format!("of an honest server: {error:?}")),
            }
        }
    }

    async fn call(&self, manager: &LockManager, plan: Plan) -> Result<Tally, String> {
        let lock = manager.lock(plan.key).lease(plan.lease).wait(plan.wait);
        let acquired = within("an acquire", plan.wait + COMMAND, async {
            if plan.wait.is_zero() {
                lock.try_acquire().await
            } else {
                lock.acquire().await.map(Some)
            }
        });
        let error = match acquired.await? {
            Ok(Some(guard)) => return self.hold(guard, plan).await,
            Ok(None) => None,
            Err(error) => Some(error),
        };
        error.as_ref().map_or(Ok(()), check)?;
        let is_busy = error.as_ref().is_none_or(Error::is_busy);
        let is_lost = error.as_ref().is_some_and(Error::is_lost);
        if self.says_nothing() && (is_busy || is_lost) {
            return Err(format!("believed of `{}`: {error:?}", plan.key));
        }
        Ok(Tally::from([(if is_busy { "busy" } else { "failed" }, 1)]))
    }

    /// Holds for a while, or until the loss, and checks that the server has proven the hold.
    async fn hold(&self, guard: LockGuard, plan: Plan) -> Result<Tally, String> {
        let mut tally = Tally::from([("guards", 1)]);
        let token = u64::from(guard.fencing_token());
        if token == 0 {
            return Err("a fencing token of zero".into());
        }
        if !self.server.proves(plan.key, token) {
            return Err(format!("nothing proves {guard:?}"));
        }
        let end = Instant::now() + plan.hold;
        loop {
            let now = Instant::now();
            let is_held = guard.is_held();
            // A hold is valid from the send of a command on, which is before the server received
            // it.
            if is_held
                && let Some(proven) = self.server.proven_at(plan.key, token)
                && now > proven + plan.lease
            {
                let late = now - proven - plan.lease;
                return Err(format!(
                    "`{}` is believed {late:?} after its lease",
                    plan.key
                ));
            }
            if !is_held || now >= end {
                tally.insert("lost", u64::from(!is_held));
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Releases are repeated until a reply comes, but a caller waits for one attempt.
        let released = within("a release", COMMAND, guard.release()).await?;
        released.or_else(|error| check(&error))?;
        Ok(tally)
    }
}

async fn within<T>(
    what: &str,
    limit: Duration,
    future: impl Future<Output = T>,
) -> Result<T, String> {
    let limit = limit + SLACK;
    let ended = tokio::time::timeout(limit, future).await;
    ended.map_err(|_| format!("{what} did not end within {limit:?}"))
}

/// Checks everything that a program may show of an error. The text of a server reaches no log
/// uncut, and no terminal with control characters.
fn check(error: &Error) -> Result<(), String> {
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        for text in [error.to_string(), format!("{error:?}")] {
            let controls = |c: char| c.is_control() || c == '\u{202e}';
            if text.len() > MAX_SHOWN || text.contains(controls) {
                return Err(format!("an error of {} bytes: {text:?}", text.len()));
            }
        }
        next = error.source();
    }
    Ok(())
}
