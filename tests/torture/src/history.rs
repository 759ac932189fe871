//! The history of a run: one JSON event per line, in one file for each process.
//!
//! All times are nanoseconds on the machine's boot clock, which all processes share. So the beliefs
//! of two workers at the same instant can be compared exactly. A worker writes each line before it
//! continues, so the last belief of a killed worker still counts.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::kind::Kind;
use crate::resource::Request;

pub(crate) type Nanos = u64;

/// Returns the current time on the boot clock.
pub(crate) fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// Returns the file name of a worker process.
pub(crate) fn worker_file(worker: u32, generation: u32) -> String {
    format!("worker-{worker}-{generation}.jsonl")
}

/// An event of a worker process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum WorkerEvent {
    /// A call made a step. `op` is unique within the process.
    Call { at: Nanos, op: u64, step: Step },
    /// Resources of the process before it connected and after it shut down.
    Census { when: When, census: Census },
}

/// A step of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    Invoked(Invocation),
    /// The body is about to start. `remaining_us` is the remaining validity, read after `at`.
    Acquired {
        token: u64,
        remaining_us: u64,
    },
    /// A sample of a running hold. `at` was read first, so the hold was valid until at least
    /// `at + remaining_us`. Zero means that the hold has ended.
    Sampled {
        remaining_us: u64,
    },
    /// The lock key, read directly on a connection without faults; `found` is the token there. The
    /// hold was valid at `believed_after`, which was read after the reply. If the hold was no
    /// longer valid then, nothing is recorded.
    Audited {
        believed_after: Nanos,
        token: u64,
        found: Option<u64>,
    },
    /// `Held::lost` resolved with a loss.
    LossSeen,
    /// The body ended (`completed`) or was dropped. `believed` is what `is_held` returned then.
    BodyEnded {
        completed: bool,
        believed: bool,
    },
    /// The release begins. Only guards record this; other calls release when the body ends.
    Releasing,
    /// The call returned, or its future was dropped on purpose. `detail` is the text of the error.
    Returned {
        outcome: Outcome,
        detail: Option<String>,
    },
}

/// The parameters of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invocation {
    pub(crate) call: Call,
    pub(crate) key: String,
    /// The other key of a call for two keys.
    pub(crate) other_key: Option<String>,
    pub(crate) lease_ms: u64,
    /// Zero for a try.
    pub(crate) wait_ms: u64,
    pub(crate) on_lost: OnLost,
    pub(crate) body: Body,
    /// The number of permits that the call acquires; 1 for other calls.
    pub(crate) weight: u32,
}

/// The resources of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Census {
    pub(crate) threads: u32,
    pub(crate) fds: u32,
    /// Live tasks on the worker's runtime.
    pub(crate) tasks: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum When {
    Before,
    After,
}

/// The function of the public API that a call uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    Attribute,
    Run,
    /// `Lock::acquire`, then `release` on the guard.
    Guard,
    Try,
    /// `MultiLock::run` over two keys, recorded as two calls.
    Several,
    /// `RwLock::run_read`.
    Read,
    /// `RwLock::run_write`, or `write` and then `downgrade`.
    Write,
    /// `RwLockWriteGuard::downgrade`: the read of a call that wrote before, recorded as another.
    Downgraded,
    /// `Semaphore::run`, for [`PERMITS`] permits in total.
    Permits,
    /// `Lock::try_run` with `once_per` of [`PERIOD`].
    Once,
    /// A transaction that moves an amount between accounts in the database of the locks, under one
    /// lock or, recorded as two calls, under two.
    Transfer,
}

impl Call {
    /// Returns true for a hold that readers share.
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Call::Read | Call::Downgraded)
    }
}

/// The period of calls that run at most once, and the shortest time between two successes.
pub(crate) const PERIOD: Duration = Duration::from_secs(2);
pub(crate) const GAP: Duration = Duration::from_millis(1_800);

/// The number of permits of every semaphore.
pub(crate) const PERMITS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnLost {
    Cancel,
    Finish,
}

/// The duration of a body, and how it spends that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Body {
    pub(crate) micros: u64,
    /// Set if the body blocks its thread instead of awaiting.
    pub(crate) blocking: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Ok,
    /// `try_acquire` returned `None`, or the call returned `Error::Busy` or `Error::QueueFull`.
    Busy,
    Unavailable,
    /// `Lost`, and the body had not completed.
    Lost,
    /// `Lost`, and the body had completed.
    LostCompleted,
    MaxHoldExceeded,
    ShutDown,
    KeyConflict,
    /// The worker dropped the future.
    Dropped,
    /// The resource rejected a stale token, or the database a lock that is lost, so the body gave up.
    Stale,
    /// The work of the period has already succeeded.
    AlreadyRan,
    /// The body failed on purpose, or its transaction did.
    Failed,
    Other,
}

/// The id of a call, unique within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct OpId {
    pub(crate) worker: u32,
    pub(crate) generation: u32,
    pub(crate) op: u64,
}

/// An access to the resource, in its own order. File `resource.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Accessed {
    pub(crate) at: Nanos,
    pub(crate) request: Request,
    pub(crate) accepted: bool,
}

/// The parameters of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    pub(crate) profile: String,
    pub(crate) topology: String,
    pub(crate) workers: u32,
    pub(crate) keys: u32,
    /// The saboteur in the workers and the resource.
    pub(crate) sabotage: Option<String>,
    /// The name and the version of the lock servers.
    pub(crate) server_version: String,
    pub(crate) commit: String,
}

/// An event of the supervisor. File `supervisor.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum SupervisorEvent {
    /// The first line.
    Run {
        at: Nanos,
        header: Header,
    },
    /// A fault began. It lasts until the `Healed` with the same number, or is instantaneous.
    Fault(Fault),
    Healed {
        at: Nanos,
        number: u64,
    },
    WorkerStarted {
        at: Nanos,
        worker: u32,
        generation: u32,
        pid: u32,
    },
    /// A worker process has exited.
    WorkerEnded {
        at: Nanos,
        worker: u32,
        generation: u32,
    },
    /// Some calls of a worker had not returned long after the longest wait and body.
    WorkerStuck {
        at: Nanos,
        worker: u32,
        generation: u32,
    },
    /// An attempt to acquire one key after healing.
    KeyTried {
        at: Nanos,
        key: String,
        acquired: bool,
        waited_ms: u64,
    },
    /// Keys on the servers after all workers have exited and the longest lease has passed.
    Leftovers {
        at: Nanos,
        keys: Vec<String>,
    },
    /// A thread of a process waited for a processor for at least half of this time.
    Starved {
        from: Nanos,
        until: Nanos,
        pid: u32,
    },
    /// The table that the locks protect, after all workers have exited.
    Accounts(Accounts),
    /// Connections of the workers, as listed by the servers.
    Connections {
        when: When,
        count: u32,
    },
    /// The last line.
    Done {
        at: Nanos,
    },
}

/// The accounts, and every committed change of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Accounts {
    /// The balance of each account at the start.
    pub(crate) balance: i64,
    pub(crate) accounts: Vec<Account>,
    pub(crate) changes: Vec<Change>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) id: i64,
    pub(crate) balance: i64,
    pub(crate) version: i64,
}

/// What a committed transaction read from an account, and wrote there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) by: OpId,
    pub(crate) account: i64,
    /// The version that it read. It wrote the next one.
    pub(crate) version: i64,
    pub(crate) before: i64,
    pub(crate) after: i64,
}

/// A fault that the supervisor caused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    pub(crate) at: Nanos,
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    /// The worker concerned. `None` means the servers, and so every worker.
    pub(crate) worker: Option<u32>,
    /// The server of a quorum concerned, or the server at the other end of the worker's link.
    pub(crate) node: Option<u32>,
    /// Set if the fault makes the servers forget no lock that its holder considers valid.
    pub(crate) lossless: bool,
    /// The keys concerned, if not all.
    pub(crate) keys: Option<Vec<String>>,
    pub(crate) detail: String,
}

/// The writer of one history file.
#[derive(Debug)]
pub(crate) struct Recorder(Mutex<File>);

impl Recorder {
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        Ok(Recorder(Mutex::new(file)))
    }

    /// Writes an event as one line with one system call, so the line survives a kill.
    pub(crate) fn record(&self, event: &impl Serialize) {
        let mut line = serde_json::to_vec(event).expect("an event is plain data");
        line.push(b'\n');
        let mut file = self.0.lock().expect("no thread panics while it writes");
        file.write_all(&line).expect("the history can be written");
    }

    /// Records a step of a call.
    pub(crate) fn step(&self, op: u64, at: Nanos, step: Step) {
        self.record(&WorkerEvent::Call { at, op, step });
    }
}

/// Reads one history file, one event at a time, because a long run may not fit into memory. Omits a
/// last line that a kill cut short.
pub(crate) fn stream<E: DeserializeOwned>(
    path: &Path,
) -> anyhow::Result<impl Iterator<Item = anyhow::Result<E>> + use<E>> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| name.clone())?;
    let mut lines = BufReader::with_capacity(1 << 20, file).lines().peekable();
    Ok(std::iter::from_fn(move || {
        let line = match lines.next()? {
            Ok(line) => line,
            Err(error) => return Some(Err(error.into())),
        };
        match serde_json::from_str(&line) {
            Ok(event) => Some(Ok(event)),
            Err(_) if lines.peek().is_none() => None,
            Err(error) => Some(Err(anyhow::anyhow!("{name}: {error} in `{line}`"))),
        }
    }))
}
