//! What a run leaves behind: one event a line, as JSON, in one file for each process.
//!
//! All times are nanoseconds on the machine's boot clock, which all processes share, so that what two
//! workers believed at the same instant can be compared exactly. A line is flushed before the worker goes
//! on, so that a killed worker's last belief still counts.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Mutex;

use anyhow::Context;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Nanoseconds on the boot clock.
pub(crate) type Nanos = u64;

/// Now, on the clock of the history.
pub(crate) fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// What a worker process did. File `worker-<number>-<generation>.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum WorkerEvent {
    /// First line of a process.
    Started {
        at: Nanos,
        worker: u32,
        generation: u32,
        pid: u32,
    },
    /// A call begins. `op` is unique within the process.
    Invoked {
        at: Nanos,
        op: u64,
        workload: Workload,
        call: Call,
        key: String,
        lease_ms: u64,
        /// Zero for a try.
        wait_ms: u64,
        on_lost: OnLost,
        /// What the body is going to do.
        body: Body,
    },
    /// The body is about to start. `remaining_us`: for how long the hold is believed, read after `at`.
    Acquired {
        at: Nanos,
        op: u64,
        token: u64,
        remaining_us: u64,
    },
    /// What the hold looked like at some moment while it was held: `at` was read first, so the hold was
    /// believed until at least `at + remaining_us`. Zero: it is over.
    Sampled {
        at: Nanos,
        op: u64,
        remaining_us: u64,
    },
    /// The body read the server's lock key directly, on a connection without faults: `found` is the token
    /// there. The hold was believed at `believed_after`, read after the answer had come; if it was not
    /// believed any more, there is no such line.
    Audited {
        at: Nanos,
        believed_after: Nanos,
        op: u64,
        token: u64,
        found: Option<u64>,
    },
    /// Something that awaits the loss was told.
    LossSeen { at: Nanos, op: u64 },
    /// The body ended (`completed`) or was dropped. `believed`: what `is_held` said then.
    BodyEnded {
        at: Nanos,
        op: u64,
        completed: bool,
        believed: bool,
    },
    /// The release begins (guards only; elsewhere it follows the body's end).
    Releasing { at: Nanos, op: u64 },
    /// The call returned, or its future was dropped on purpose.
    Returned {
        at: Nanos,
        op: u64,
        outcome: Outcome,
        /// The error's text.
        detail: Option<String>,
    },
    /// What the process had before it connected and after it shut down.
    Census {
        at: Nanos,
        when: When,
        threads: u32,
        fds: u32,
        /// Tasks alive on the worker's runtime.
        tasks: u32,
    },
    /// Last line of a process that ended by itself.
    Stopped { at: Nanos },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum When {
    Before,
    After,
}

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Workload {
    Counter,
    LockSet,
    Once,
    /// Many waiters of one key.
    LongQueue,
    /// Calls of the supervisor that show that a key can be acquired.
    Liveness,
}

/// Through which door.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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
#[serde(rename_all = "snake_case")]
pub(crate) struct Body {
    pub(crate) micros: u64,
    /// It blocks its thread instead of awaiting.
    pub(crate) blocking: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Ok,
    /// `try_acquire` gave `None`, or `Error::Busy`.
    Busy,
    Unavailable,
    /// `Lost { completed: false }`.
    Lost,
    /// `Lost { completed: true }`.
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

/// What the fenced resource saw. File `resource.jsonl`, written by the resource itself, in its order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum ResourceEvent {
    /// An access to a register. `value` is what was read, or is to be written.
    Access {
        at: Nanos,
        key: String,
        fenced: bool,
        write: bool,
        worker: u32,
        generation: u32,
        op: u64,
        token: u64,
        value: u64,
        accepted: bool,
    },
    /// An access to a set; `element` is 0 for a read.
    Set {
        at: Nanos,
        key: String,
        write: bool,
        worker: u32,
        generation: u32,
        op: u64,
        token: u64,
        element: u64,
        /// How many elements the set has then.
        size: u64,
        accepted: bool,
    },
    /// A job was executed, or its execution refused.
    Job {
        at: Nanos,
        key: String,
        job: u64,
        worker: u32,
        generation: u32,
        op: u64,
        token: u64,
        accepted: bool,
    },
}

/// What the supervisor did. File `supervisor.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum SupervisorEvent {
    /// First line.
    Run {
        at: Nanos,
        seed: u64,
        seconds: u64,
        profile: String,
        topology: String,
        workers: u32,
        keys: u32,
        /// Of the saboteur that the workers run with.
        sabotage: Option<String>,
        redis_version: String,
        commit: String,
    },
    Phase {
        at: Nanos,
        phase: Phase,
    },
    /// A fault began. It lasts until the `Healed` with the same number, or is over at once.
    Fault {
        at: Nanos,
        number: u64,
        kind: String,
        /// The worker it concerns; `None`: the server, and so everybody.
        worker: Option<u32>,
        /// The node of a quorum that it concerns, or the worker's link to it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<u32>,
        /// Whether the server keeps its data and its clock's rate, and no lock is lost by it.
        lossless: bool,
        /// The keys that it concerns, if not all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keys: Option<Vec<String>>,
        detail: String,
    },
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
    /// A worker's process is gone; `killed`: by a fault.
    WorkerEnded {
        at: Nanos,
        worker: u32,
        generation: u32,
        killed: bool,
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
    /// Keys on the server after everybody has gone and the longest lease has passed.
    Leftovers {
        at: Nanos,
        keys: Vec<String>,
    },
    /// A process was starved: one of its threads was ready to run, and waited for a processor for at least half of this time.
    Starved {
        from: Nanos,
        until: Nanos,
        pid: u32,
    },
    /// Connections of the workers, as the server lists them.
    Connections {
        at: Nanos,
        when: When,
        count: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    WarmUp,
    Chaos,
    Heal,
    Liveness,
    Done,
}

/// What the server executed, read from MONITOR on a connection without faults. File `server.jsonl`; of a cluster a file
/// for each shard, `server-<shard>.jsonl`.
///
/// `at` is when the line was received, in a cluster when the command was executed; `wall_us` the server's own time, which the clock shim may bend.
/// Commands inside a script carry the `script` line's `serial`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum ServerEvent {
    /// A script of a client begins: `verb` is recognised by its hash, `owner` its first argument.
    Script {
        at: Nanos,
        wall_us: u64,
        serial: u64,
        verb: String,
        owner: Option<String>,
    },
    /// A lock was written. `until_us`: server time at which it expires.
    Set {
        at: Nanos,
        wall_us: u64,
        serial: u64,
        key: String,
        owner: String,
        token: u64,
        /// The token began with a zero: released, and kept taken by `min_hold`.
        kept: bool,
        /// It is a node's vote, and not confirmed yet.
        #[serde(default, skip_serializing_if = "is_not")]
        vote: bool,
        until_us: u64,
    },
    /// A lock's TTL was set.
    Extend {
        at: Nanos,
        wall_us: u64,
        serial: u64,
        key: String,
        until_us: u64,
    },
    /// A lock was deleted.
    Delete {
        at: Nanos,
        wall_us: u64,
        serial: u64,
        key: String,
    },
    /// A queue's entry was added or removed.
    Queue {
        at: Nanos,
        wall_us: u64,
        serial: u64,
        key: String,
        owner: String,
        added: bool,
        /// By which a quorum's node orders its queue.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ticket: Option<u64>,
    },
    /// A grant was published.
    Publish {
        at: Nanos,
        wall_us: u64,
        serial: u64,
        key: String,
        owner: String,
        token: u64,
    },
    /// All data is gone: a restart without persistence, or a flush.
    Amnesia { at: Nanos },
    /// MONITOR was interrupted: what happened meanwhile is not known.
    Gap {
        from: Nanos,
        until: Nanos,
        /// To these keys, if not to any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keys: Option<Vec<String>>,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_not(flag: &bool) -> bool {
    !flag
}

impl ServerEvent {
    /// When it happened, or began.
    pub(crate) fn at(&self) -> Nanos {
        match self {
            ServerEvent::Script { at, .. }
            | ServerEvent::Set { at, .. }
            | ServerEvent::Extend { at, .. }
            | ServerEvent::Delete { at, .. }
            | ServerEvent::Queue { at, .. }
            | ServerEvent::Publish { at, .. }
            | ServerEvent::Amnesia { at }
            | ServerEvent::Gap { from: at, .. } => *at,
        }
    }
}

/// Writes one history file.
#[derive(Debug)]
pub(crate) struct Recorder(Mutex<File>);

impl Recorder {
    pub(crate) fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Recorder(Mutex::new(File::create(path)?)))
    }

    /// Writes an event as one line, with one system call: it is there even if the process is killed next.
    pub(crate) fn record(&self, event: &impl Serialize) {
        let mut line = serde_json::to_vec(event).expect("an event is plain data");
        line.push(b'\n');
        let mut file = self.0.lock().expect("nobody panics while writing");
        file.write_all(&line).expect("the history can be written");
    }
}

/// Reads one history file, an event at a time: a long run's lines need not fit into memory together. A last
/// line that was cut short by a kill is left out.
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

/// All of one history file.
pub(crate) fn read<E: DeserializeOwned>(path: &Path) -> anyhow::Result<Vec<E>> {
    stream(path)?.collect()
}
