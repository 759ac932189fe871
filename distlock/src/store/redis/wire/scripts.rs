//! The Lua scripts, sent by hash, or as source if the server does not know them.

use std::collections::BTreeMap;
use std::sync::Arc;

use once_cell::sync::Lazy;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};

use self::Form::{Counted, Mutex, Once, Quorum};
use self::ScriptId::{
    Acquire, AcquireAll, CheckQueue, Confirm, DeleteRecord, Downgrade, Inspect, Probe, Release,
    Renew, Repair, Revoke, Yield,
};

/// The start of every script. Run without keys, a script does nothing, but the server knows it from
/// then on. `SCRIPT LOAD` would require an additional permission.
const PREAMBLE: &str = "if not KEYS[1] then return 0 end\n";

/// Code above this line returns its request number itself, because the wrapper costs 1 µs.
const SLOW_PATH_MARKER: &str = "--@slow path\n";

/// The wrapper of every script. It appends the request number (see `request_numbers.rs`), which is
/// the last argument, to the reply. A text costs the server less than a list.
const WRAPPER: [&str; 2] = [
    "local function run()\n",
    "end
local reply, number = run(), ARGV[#ARGV]
if type(reply) ~= 'table' then return reply .. ' ' .. number end
reply[#reply + 1] = number
return reply
",
];

/// The scripts of a client: one for each command, and the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ScriptId {
    Acquire,
    Confirm,
    Renew,
    /// Only for counted locks.
    Downgrade,
    Release,
    CheckQueue,
    Inspect,
    Revoke,
    Probe,
    /// Loaded at its first use, because few clients use it.
    AcquireAll,
    /// Only for calls that run at most once.
    DeleteRecord,
    /// Only for a node of a quorum, like the next one.
    Yield,
    Repair,
}

/// The form of a script. The same command has several, for different locks or calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    Mutex,
    /// Loaded at its first use, like the next one.
    Counted,
    /// For calls that run at most once.
    Once,
    /// For a node of a quorum, where it replaces or extends the scripts of mutexes.
    Quorum,
}

impl Form {
    pub(crate) fn of(is_counted: bool, runs_once: bool) -> Self {
        match (runs_once, is_counted) {
            (true, _) => Once,
            (false, true) => Counted,
            (false, false) => Mutex,
        }
    }
}

/// A script's name in `lua/`, and its text.
macro_rules! lua {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../../lua/", $name, ".lua")),
        )
    };
}

/// The fragments, by the name in the lines that include them. A fragment may include later ones.
const FRAGMENTS: [(&str, &str); 11] = [
    lua!("acquire"),
    lua!("confirm"),
    lua!("release"),
    lua!("next"),
    lua!("join"),
    lua!("queue"),
    lua!("fence"),
    lua!("counted/holders"),
    lua!("counted/extend"),
    lua!("once/record"),
    lua!("quorum/epoch"),
];

/// The fragments that an empty line follows. Without it, the hashes of the scripts would change.
const BEFORE_EMPTY_LINE: [&str; 2] = ["next", "quorum/epoch"];

const SOURCES: [(Form, ScriptId, (&str, &str)); 26] = [
    (Mutex, Acquire, lua!("acquire")),
    (Mutex, Confirm, lua!("confirm")),
    (Mutex, Renew, lua!("renew")),
    (Mutex, Release, lua!("release")),
    (Mutex, CheckQueue, lua!("check_queue")),
    (Mutex, Inspect, lua!("inspect")),
    (Mutex, Revoke, lua!("revoke")),
    (Mutex, Probe, lua!("probe")),
    (Mutex, AcquireAll, lua!("acquire_all")),
    (Counted, Acquire, lua!("counted/acquire")),
    (Counted, Confirm, lua!("counted/confirm")),
    (Counted, Renew, lua!("counted/renew")),
    (Counted, Downgrade, lua!("counted/downgrade")),
    (Counted, Release, lua!("counted/release")),
    (Counted, CheckQueue, lua!("counted/check_queue")),
    (Counted, Inspect, lua!("counted/inspect")),
    (Counted, Revoke, lua!("counted/revoke")),
    (Once, Acquire, lua!("once/acquire")),
    (Once, Confirm, lua!("once/confirm")),
    (Once, Release, lua!("once/release")),
    (Once, DeleteRecord, lua!("once/delete")),
    (Quorum, Acquire, lua!("quorum/acquire")),
    (Quorum, Confirm, lua!("quorum/confirm")),
    (Quorum, Renew, lua!("quorum/renew")),
    (Quorum, Release, lua!("quorum/release")),
    (Quorum, Revoke, lua!("quorum/revoke")),
];

#[derive(Debug)]
pub(crate) struct Scripts(BTreeMap<(Form, ScriptId), Arc<Script>>);

impl Scripts {
    /// Returns our scripts. They are assembled and hashed once in a process.
    pub(crate) fn bundled() -> Arc<Self> {
        static BUNDLED: Lazy<Arc<Scripts>> =
            Lazy::new(|| Arc::new(Scripts::edited(|_, source| source)));
        BUNDLED.clone()
    }

    /// Returns our scripts after an edit of each source by its name. Fragments are included first.
    pub(crate) fn edited(edit: impl Fn(&str, String) -> String) -> Self {
        let include = |source: String, (name, fragment): &(&str, &str)| {
            let line_end = if BEFORE_EMPTY_LINE.contains(name) {
                ""
            } else {
                "\n"
            };
            source.replace(&format!("--@include {name}{line_end}"), fragment)
        };
        let script = |(form, id, (name, source)): (Form, ScriptId, (&str, &str))| {
            let source = FRAGMENTS.iter().fold(source.to_owned(), include);
            ((form, id), Arc::new(Script::new(&edit(name, source))))
        };
        Scripts(SOURCES.map(script).into())
    }

    /// Returns the same scripts for a node of a quorum.
    pub(crate) fn for_quorum(&self) -> Self {
        let in_form = |form| {
            let scripts = self.0.iter().filter(move |((known, _), _)| *known == form);
            scripts.map(|((_, id), script)| ((Mutex, *id), script.clone()))
        };
        Scripts(in_form(Mutex).chain(in_form(Quorum)).collect())
    }

    /// Returns the same scripts for a cluster, where each slot has a channel for a client's pushes.
    pub(crate) fn for_cluster(&self) -> Self {
        let sharded = |(id, script): (&(Form, ScriptId), &Arc<Script>)| {
            let source = script.source.replace("'NUMSUB'", "'SHARDNUMSUB'");
            let source = source.replace("'PUBLISH'", "'SPUBLISH'");
            (*id, Arc::new(Script::hashed(source)))
        };
        Scripts(self.0.iter().map(sharded).collect())
    }

    /// Returns true if these are the scripts of a node of a quorum.
    pub(crate) fn are_for_quorum(&self) -> bool {
        self.0.contains_key(&(Mutex, Yield))
    }

    /// Returns a script in the form for mutexes, which is the only one of a quorum.
    pub(crate) fn get(&self, id: ScriptId) -> &Script {
        self.in_form(Mutex, id)
    }

    pub(crate) fn in_form(&self, form: Form, id: ScriptId) -> &Script {
        &self.0[&(form, id)]
    }
}

/// A script that is ready to be sent.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) source: String,
    pub(crate) hash: String,
}

/// How a command refers to a script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScriptRef {
    Hash,
    Source,
}

impl Script {
    fn new(source: &str) -> Self {
        let (fast, slow) = source.split_once(SLOW_PATH_MARKER).unwrap_or(("", source));
        let (fast, slow) = (without_comments(fast), without_comments(slow));
        let [prefix, suffix] = WRAPPER;
        Self::hashed(format!("{PREAMBLE}{fast}{prefix}{slow}{suffix}"))
    }

    fn hashed(source: String) -> Self {
        let hash = sha1_smol::Sha1::from(&source).digest().to_string();
        Script { source, hash }
    }

    /// Starts the command that runs the script.
    pub(crate) fn command(&self, script_ref: ScriptRef) -> Cmd {
        match script_ref {
            ScriptRef::Hash => {
                // Large enough for most commands: a hash, four keys, a handful of arguments.
                let mut cmd = Cmd::with_capacity(16, 512);
                cmd.arg("EVALSHA").arg(&self.hash);
                cmd
            }
            ScriptRef::Source => {
                let mut cmd = redis::cmd("EVAL");
                cmd.arg(&self.source);
                cmd
            }
        }
    }

    /// Returns the command that makes the server know the script.
    pub(crate) fn load_command(&self) -> Cmd {
        let mut cmd = self.command(ScriptRef::Source);
        cmd.arg(0);
        cmd
    }
}

/// Removes comments, which are for readers of `lua/`, not for the server.
fn without_comments(source: &str) -> String {
    let kept = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"));
    kept.map(|line| format!("{line}\n")).collect()
}

/// Returns true if the server does not know the script. Nothing was run.
pub(crate) fn is_noscript(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutexes of several versions share a server, and a change of a fragment may not cost them.
    #[test]
    fn scripts_of_mutexes_as_sent() {
        let scripts = Scripts::bundled();
        for ((_, id, (name, _)), hash) in SOURCES.iter().zip([
            "5bb22737d60b15943ed9344ff6c9ac491f3b264a",
            "a7ba873adbd9e85edb085ac26db81520cb30d4fb",
            "0c527c140b2a52760642bbc1b1065ef39305316c",
            "d047c5018977a6eef3b9c0439304d974c6173097",
            "ee97b21e4dafd1c124154a8fb87f6fbb3ef35bed",
            "e69421a1522d8bc3547a7d191ece3a1c3c3d08ee",
            "91a54158e2cf6340dfe693d55fdcfd6a285b18d8",
            "c586d7d903e746cba2d7f2846811acfd28495552",
            "f86fe4368aeeb63bf00b8342aedeb89e1cee48cc",
        ]) {
            assert_eq!(scripts.get(*id).hash, hash, "{name}");
        }
    }
}
