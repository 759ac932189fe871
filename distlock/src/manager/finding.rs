//! What a diagnosis finds.

use std::fmt;

/// One thing that was looked at, see [`LockManager::diagnose`](crate::LockManager::diagnose).
///
/// ```
/// # use distlock::{LockManager, Verdict};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// # let locks = LockManager::memory();
/// let findings = locks.diagnose().await?;
/// let locking = findings.iter().find(|finding| finding.check == "locking").expect("it is tried each time");
/// assert!(locking.verdict < Verdict::Bad, "{}: {}", locking.found, locking.advice);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The server, by its address; the whole store where it is not about one of its servers.
    pub server: String,
    /// What was looked at, in a word: `version`, `eviction`, `persistence`, `clock` and so on.
    pub check: &'static str,
    /// What that means for locks.
    pub verdict: Verdict,
    /// What was found there.
    pub found: String,
    /// What to do, or to know; empty where all is well.
    pub advice: String,
}

/// What a finding means for locks.
///
/// ```
/// use distlock::Verdict;
///
/// let verdicts = [Verdict::Mind, Verdict::Good];
/// assert_eq!(verdicts.iter().max(), Some(&Verdict::Mind), "the worst of them");
/// assert_eq!(format!("{:<5}|", Verdict::Bad), "bad  |");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// As it should be.
    Good,
    /// It works, and there is something to know about it, or it could not be looked at.
    Mind,
    /// Locks fail, or may be held twice.
    Bad,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Good => "good",
            Verdict::Mind => "mind",
            Verdict::Bad => "bad",
        })
    }
}
