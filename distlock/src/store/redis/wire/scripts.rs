//! The Lua scripts, sent by hash, or as source if the server does not know them.

use std::collections::BTreeMap;
use std::sync::Arc;

use once_cell::sync::Lazy;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};

use self::ScriptId::{
    Acquire, AcquireAll, CheckQueue, Confirm, DeleteRecord, Downgrade, Inspect, Probe, Release,
    Renew, Repair, Revoke, Yield,
};

/// The lines that include a fragment, and the fragments. A fragment may include later ones.
const FRAGMENTS: [(&str, &str); 11] = [
    (
        "--@include acquire\n",
        include_str!("../../../../lua/acquire.lua"),
    ),
    (
        "--@include confirm\n",
        include_str!("../../../../lua/confirm.lua"),
    ),
    (
        "--@include release\n",
        include_str!("../../../../lua/release.lua"),
    ),
    ("--@include next", include_str!("../../../../lua/next.lua")),
    (
        "--@include join\n",
        include_str!("../../../../lua/join.lua"),
    ),
    (
        "--@include queue\n",
        include_str!("../../../../lua/queue.lua"),
    ),
    (
        "--@include fence\n",
        include_str!("../../../../lua/fence.lua"),
    ),
    (
        "--@include counted/holders\n",
        include_str!("../../../../lua/counted/holders.lua"),
    ),
    (
        "--@include counted/extend\n",
        include_str!("../../../../lua/counted/extend.lua"),
    ),
    (
        "--@include quorum/epoch",
        include_str!("../../../../lua/quorum/epoch.lua"),
    ),
    (
        "--@include quorum/votes",
        include_str!("../../../../lua/quorum/votes.lua"),
    ),
];

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

/// A script's name in `lua/`, and its text.
macro_rules! lua {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../../lua/", $name, ".lua")),
        )
    };
}

const SOURCES: [(ScriptId, (&str, &str)); 9] = [
    (Acquire, lua!("acquire")),
    (Confirm, lua!("confirm")),
    (Renew, lua!("renew")),
    (Release, lua!("release")),
    (CheckQueue, lua!("check_queue")),
    (Inspect, lua!("inspect")),
    (Revoke, lua!("revoke")),
    (Probe, lua!("probe")),
    (AcquireAll, lua!("acquire_all")),
];

/// The scripts of counted locks. They are loaded at their first use.
const COUNTED_SOURCES: [(ScriptId, (&str, &str)); 8] = [
    (Acquire, lua!("counted/acquire")),
    (Confirm, lua!("counted/confirm")),
    (Renew, lua!("counted/renew")),
    (Downgrade, lua!("counted/downgrade")),
    (Release, lua!("counted/release")),
    (CheckQueue, lua!("counted/check_queue")),
    (Inspect, lua!("counted/inspect")),
    (Revoke, lua!("counted/revoke")),
];

/// The scripts of calls that run at most once. They are loaded at their first use.
const ONCE_SOURCES: [(ScriptId, (&str, &str)); 4] = [
    (Acquire, lua!("once/acquire")),
    (Confirm, lua!("once/confirm")),
    (Release, lua!("once/release")),
    (DeleteRecord, lua!("once/delete")),
];

/// The scripts that differ, or exist only, on a node of a quorum.
const QUORUM_SOURCES: [(ScriptId, (&str, &str)); 7] = [
    (Acquire, lua!("quorum/acquire")),
    (Confirm, lua!("quorum/confirm")),
    (Renew, lua!("quorum/renew")),
    (Release, lua!("quorum/release")),
    (Revoke, lua!("quorum/revoke")),
    (Yield, lua!("quorum/yield")),
    (Repair, lua!("quorum/repair")),
];

#[derive(Debug)]
pub(crate) struct Scripts {
    by_id: BTreeMap<ScriptId, Arc<Script>>,
    counted: BTreeMap<ScriptId, Arc<Script>>,
    once: BTreeMap<ScriptId, Arc<Script>>,
    /// Replace or extend `by_id` on a node of a quorum.
    quorum: BTreeMap<ScriptId, Arc<Script>>,
}

impl Scripts {
    /// Returns our scripts. They are assembled and hashed once in a process.
    pub(crate) fn bundled() -> Arc<Self> {
        static BUNDLED: Lazy<Arc<Scripts>> =
            Lazy::new(|| Arc::new(Scripts::edited(|_, source| source)));
        BUNDLED.clone()
    }

    /// Returns our scripts after an edit of each source by its name. Fragments are included first.
    pub(crate) fn edited(edit: impl Fn(&str, String) -> String) -> Self {
        let script = |(id, (name, source)): (ScriptId, (&str, &str))| {
            let include =
                |source: String, (line, fragment): &(&str, &str)| source.replace(line, fragment);
            let source = FRAGMENTS.iter().fold(source.to_owned(), include);
            (id, Arc::new(Script::new(&edit(name, source))))
        };
        Scripts {
            by_id: SOURCES.map(script).into(),
            counted: COUNTED_SOURCES.map(script).into(),
            once: ONCE_SOURCES.map(script).into(),
            quorum: QUORUM_SOURCES.map(script).into(),
        }
    }

    /// Returns the same scripts for a node of a quorum.
    pub(crate) fn for_quorum(&self) -> Self {
        let (mut by_id, quorum) = (self.by_id.clone(), self.quorum.clone());
        by_id.extend(self.quorum.clone());
        Scripts {
            by_id,
            counted: BTreeMap::new(),
            once: BTreeMap::new(),
            quorum,
        }
    }

    /// Returns the same scripts for a cluster, where each slot has a channel for a client's pushes.
    pub(crate) fn for_cluster(&self) -> Self {
        let sharded = |(id, script): (&ScriptId, &Arc<Script>)| {
            let source = script.source.replace("'NUMSUB'", "'SHARDNUMSUB'");
            let source = source.replace("'PUBLISH'", "'SPUBLISH'");
            (*id, Arc::new(Script::hashed(source)))
        };
        Scripts {
            by_id: self.by_id.iter().map(sharded).collect(),
            counted: self.counted.iter().map(sharded).collect(),
            once: self.once.iter().map(sharded).collect(),
            quorum: BTreeMap::new(),
        }
    }

    /// Returns true if these are the scripts of a node of a quorum.
    pub(crate) fn are_for_quorum(&self) -> bool {
        self.by_id.contains_key(&Yield)
    }

    pub(crate) fn get(&self, id: ScriptId) -> &Script {
        &self.by_id[&id]
    }

    /// Returns a script of counted locks, which a quorum does not have.
    pub(crate) fn counted(&self, id: ScriptId) -> &Script {
        &self.counted[&id]
    }

    /// Returns a script of calls that run at most once, which a quorum does not have.
    pub(crate) fn once(&self, id: ScriptId) -> &Script {
        &self.once[&id]
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
        for ((id, (name, _)), hash) in SOURCES.iter().zip([
            "5bb22737d60b15943ed9344ff6c9ac491f3b264a",
            "a7ba873adbd9e85edb085ac26db81520cb30d4fb",
            "0c527c140b2a52760642bbc1b1065ef39305316c",
            "d047c5018977a6eef3b9c0439304d974c6173097",
            "ee97b21e4dafd1c124154a8fb87f6fbb3ef35bed",
            "f11c9dd7dbcf6bdf6c1c0606bc6a64ebb110b0b0",
            "91a54158e2cf6340dfe693d55fdcfd6a285b18d8",
            "7e7f48e5534c4dd5e550c46f4173a78151cd2ddf",
            "f86fe4368aeeb63bf00b8342aedeb89e1cee48cc",
        ]) {
            assert_eq!(scripts.get(*id).hash, hash, "{name}");
        }
    }
}
