//! Whether a store is set up as locks need it.

use std::time::Duration;

use crate::error::{Error, Outage};
use crate::manager::LockManager;
use crate::manager::finding::{Finding, Verdict};
use crate::manager::verdicts;

/// How long one question may take.
const EACH_WITHIN: Duration = Duration::from_secs(1);

/// The lock that is tried out.
const TRIAL: &str = "distlock-doctor";

/// How long others who diagnose, at the same time, are waited for, and a hand-off.
const TRIAL_WAIT: Duration = Duration::from_secs(5);

/// A hand-off that takes longer was looked for, and not told.
const PROMPT: Duration = Duration::from_millis(40);

/// The pause before the queue of the trial is looked at again.
const AGAIN: Duration = Duration::from_millis(2);

impl LockManager {
    /// Looks at the store as an operator would: how each of its servers is set up, and whether a lock can be acquired,
    /// waited for and handed on, with the rights of this manager's user. For a lock that replicas or a disk are to have,
    /// by this manager's [`min_replicas`](crate::LockManagerBuilder::min_replicas) and
    /// [`fsync`](crate::LockManagerBuilder::fsync), that is tried out as well.
    ///
    /// Every primary of a cluster is asked, every server of a quorum, and under sentinels the master and each sentinel. `INFO` and
    /// `CONFIG GET` may be forbidden, for locks need neither: then what they would tell is [`Verdict::Mind`]. It takes about
    /// 30 round trips to each server, and one lock, `distlock-doctor`, of which a fencing token stays for the `fence_ttl`.
    ///
    /// ```
    /// # async fn f() -> Result<(), distlock::Error> {
    /// use distlock::{LockManager, Verdict};
    ///
    /// let locks = LockManager::memory();
    /// for finding in locks.diagnose().await? {
    ///     println!("{} {} {}", finding.verdict, finding.check, finding.found);
    ///     assert_ne!(finding.verdict, Verdict::Bad, "{}", finding.advice);
    /// }
    /// # Ok(()) }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(f()).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ShutDown`], and [`Error::Unavailable`] if it is not even known which servers there are. A server that cannot be
    /// reached is a finding.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no lock behind.
    pub async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        self.check_alive()?;
        let mut findings = vec![self.trial().await];
        let facts = self.at_home(|core| async move {
            let facts = core.store.facts(EACH_WITHIN).await;
            facts.map_err(|trouble| trouble.into_error(None, Duration::ZERO))
        });
        let facts = facts.await?;
        for facts in &facts {
            findings.extend(verdicts::of(facts, self.durability().replicas));
        }
        Ok(findings)
    }

    /// A lock that one call holds and another waits for.
    async fn trial(&self) -> Finding {
        let finding = |verdict, found: String, advice: &str| Finding {
            server: self.address().unwrap_or("memory:").to_owned(),
            check: "locking",
            verdict,
            found,
            advice: advice.to_owned(),
        };
        let lock = self.lock(TRIAL).wait(TRIAL_WAIT).lease(TRIAL_WAIT * 2);
        // It is this call tree's own nowhere, or it would be re-entered.
        let first = match lock.acquire().await {
            Ok(guard) => guard,
            Err(error) => return failed(&finding, &error),
        };
        let clock = &self.core().clock;
        let hand_on = async {
            let tried = clock.now();
            while clock.now().since(tried) < TRIAL_WAIT {
                match self.inspect(TRIAL).await {
                    Ok(state) if state.waiters == 0 => self.core().executor.sleep(AGAIN).await,
                    _ => break,
                }
            }
            let released = clock.now();
            first.release().await.map(|()| released)
        };
        let wait = async {
            let second = lock.acquire().await?;
            let handed = clock.now();
            second.release().await.map(|()| handed)
        };
        match tokio::join!(hand_on, wait) {
            (Ok(released), Ok(handed)) => {
                let took = handed.since(released);
                let found =
                    format!("acquired, waited for, handed on after {took:.1?} and released");
                if took <= PROMPT {
                    finding(Verdict::Good, found, "")
                } else {
                    finding(
                        Verdict::Mind,
                        found,
                        "if that is so each time, who waits is not told and looks instead: give the user the rights for \
                         quick hand-off (docs/storage.md lists them), and let no proxy stand between that keeps messages back",
                    )
                }
            }
            (Err(error), _) | (_, Err(error)) => failed(&finding, &error),
        }
    }
}

fn failed(finding: &impl Fn(Verdict, String, &str) -> Finding, error: &Error) -> Finding {
    match error {
        Error::Busy { .. } => finding(
            Verdict::Mind,
            error.to_string(),
            "somebody else diagnoses at this moment; try again",
        ),
        Error::Unavailable {
            outage: Outage::Denied,
            ..
        } => finding(
            Verdict::Bad,
            error.to_string(),
            "give the user the rights that docs/storage.md lists",
        ),
        Error::Config { .. }
        | Error::Unavailable {
            outage: Outage::Misconfigured,
            ..
        } => finding(
            Verdict::Bad,
            error.to_string(),
            "change the URL or the setting that it names",
        ),
        _ => finding(
            Verdict::Bad,
            error.to_string(),
            "no lock can be had as long as this is so",
        ),
    }
}
