//! What a run leaves behind: one event a line, as JSON, in one file for each process.
//!
//! All times are nanoseconds on the machine's boot clock, which all processes share, so what two
//! workers believed at the same instant can be compared exactly. A line is written before its
//! worker goes on, so the last belief of a killed worker still counts.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Mutex;

use anyhow::Context;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::kind::Kind;

/// Nanoseconds on the boot clock.
pub(crate) type Nanos = u64;

/// Now, on the clock of the history.
pub(crate) fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// The file of a worker process.
pub(crate) fn worker_file(worker: u32, generation: u32) -> String {
    format!("worker-{worker}-{generation}.jsonl")
}

/// What a worker process did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum WorkerEvent {
    /// A call came so far. `op` is unique within the process.
    Call { at: Nanos, op: u64, step: Step },
    /// What the process had before it connected and after it shut down.
    Census { when: When, census: Census },
}

/// How far a call came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    Invoked(Invocation),
    /// The body is about to start. `remaining_us`: for how long the hold is believed, read after
    /// `at`.
    Acquired {
        token: u64,
        remaining_us: u64,
    },
    /// What the hold looked like while it was held: `at` was read first, so the hold was believed
    /// until at least `at + remaining_us`. Zero: it is over.
    Sampled {
        remaining_us: u64,
    },
    /// The lock key was read directly, on a connection without faults: `found` is the token there.
    /// The hold was believed at `believed_after`, read after the answer had come; if it was not
    /// believed any more, there is no such line.
    Audited {
        believed_after: Nanos,
        token: u64,
        found: Option<u64>,
    },
    /// What awaits the loss was notified.
    LossSeen,
    /// The body ended (`completed`) or was dropped. `believed`: what `is_held` returned then.
    BodyEnded {
        completed: bool,
        believed: bool,
    },
    /// The release begins (guards only; elsewhere it follows the body's end).
    Releasing,
    /// The call returned, or its future was dropped on purpose. `detail`: the error's text.
    Returned {
        outcome: Outcome,
        detail: Option<String>,
    },
}

/// What a call asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invocation {
    pub(crate) call: Call,
    pub(crate) key: String,
    pub(crate) lease_ms: u64,
    /// Zero for a try.
    pub(crate) wait_ms: u64,
    pub(crate) on_lost: OnLost,
    pub(crate) body: Body,
}

/// What a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Census {
    pub(crate) threads: u32,
    pub(crate) fds: u32,
    /// Tasks alive on the worker's runtime.
    pub(crate) tasks: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum When {
    Before,
    After,
}

/// The function of the public API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    /// `#[distributed_lock]`.
    Attribute,
    /// `Lock::run`.
    Run,
    /// `Lock::acquire`, a guard, `release`.
    Guard,
    /// `Lock::try_acquire`.
    Try,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnLost {
    Cancel,
    Finish,
}

/// How a body spends its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Body {
    pub(crate) micros: u64,
    /// It blocks its thread instead of awaiting.
    pub(crate) blocking: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Ok,
    /// `try_acquire` gave `None`, or `Error::Busy`.
    Busy,
    Unavailable,
    /// `Lost`, and the work had not been done.
    Lost,
    /// `Lost`, and the work had been done.
    LostCompleted,
    HoldLimit,
    ShutDown,
    ForeignKey,
    /// The worker dropped the future.
    Dropped,
    /// The resource refused a stale token, so the body gave up.
    Stale,
    Other,
}

/// Which call: unique within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct OpId {
    pub(crate) worker: u32,
    pub(crate) generation: u32,
    pub(crate) op: u64,
}

/// An access to a register of the resource, in the resource's order. File `resource.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Accessed {
    pub(crate) at: Nanos,
    pub(crate) key: String,
    pub(crate) fenced: bool,
    pub(crate) by: OpId,
    pub(crate) token: u64,
    /// What is to be written; `None` for a read.
    pub(crate) write: Option<u64>,
    pub(crate) accepted: bool,
}

/// What a run is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    pub(crate) profile: String,
    pub(crate) topology: String,
    pub(crate) workers: u32,
    pub(crate) keys: u32,
    /// The saboteur that the workers run with.
    pub(crate) sabotage: Option<String>,
    pub(crate) redis_version: String,
    pub(crate) commit: String,
}

/// What the supervisor did. File `supervisor.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum SupervisorEvent {
    /// First line.
    Run {
        at: Nanos,
        header: Header,
    },
    /// A fault began. It lasts until the `Healed` with the same number, or is over at once.
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
    /// A worker's process is gone.
    WorkerEnded {
        at: Nanos,
        worker: u32,
        generation: u32,
    },
    /// A worker's calls had not all returned long after the longest wait and body.
    WorkerStuck {
        at: Nanos,
        worker: u32,
        generation: u32,
    },
    /// One key tried after healing.
    KeyTried {
        at: Nanos,
        key: String,
        acquired: bool,
        waited_ms: u64,
    },
    /// Keys on the servers after all workers have gone and the longest lease has passed.
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
    /// Connections of the workers, as the servers list them.
    Connections {
        when: When,
        count: u32,
    },
    /// Last line.
    Done {
        at: Nanos,
    },
}

/// What was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    pub(crate) at: Nanos,
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    /// The worker it concerns; `None`: servers, and so everybody.
    pub(crate) worker: Option<u32>,
    /// The server of a quorum that it concerns, or the worker's link to it.
    pub(crate) node: Option<u32>,
    /// Whether the servers keep their data and their clocks, and no lock is lost by it.
    pub(crate) lossless: bool,
    /// The keys that it concerns, if not all.
    pub(crate) keys: Option<Vec<String>>,
    pub(crate) detail: String,
}

/// Writes one history file.
#[derive(Debug)]
pub(crate) struct Recorder(Mutex<File>);

impl Recorder {
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        Ok(Recorder(Mutex::new(file)))
    }

    /// Writes an event as one line, with one system call: it is there even if the process is
    /// killed next.
    pub(crate) fn record(&self, event: &impl Serialize) {
        let mut line = serde_json::to_vec(event).expect("an event is plain data");
        line.push(b'\n');
        let mut file = self.0.lock().expect("no thread panics while it writes");
        file.write_all(&line).expect("the history can be written");
    }

    /// Writes that a call came so far.
    pub(crate) fn step(&self, op: u64, at: Nanos, step: Step) {
        self.record(&WorkerEvent::Call { at, op, step });
    }
}

/// Reads one history file, an event at a time: the lines of a long run need not fit into memory
/// together. A last line that was cut short by a kill is left out.
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
