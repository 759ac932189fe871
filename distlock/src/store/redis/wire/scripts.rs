//! The Lua scripts, sent by hash and, where the server does not know them, by source.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};

use self::ScriptId::{Ask, Confirm, Inspect, Look, Probe, Release, Renew, Repair, Revoke, Yield};

/// The fragment that `--@include next` stands for.
const NEXT: &str = include_str!("../../../../lua/next.lua");

/// Every script begins with this: run without keys it does nothing, and the server knows it from
/// then on. `SCRIPT LOAD` would need a right of its own.
const BEGIN: &str = "if not KEYS[1] then return 0 end\n";

/// What is above this line returns the number of its request itself, because the wrapper costs 1
/// us.
const SLOW_PATH: &str = "--@slow path\n";

/// Around every script: its reply repeats the number of its request (see `request_numbers.rs`),
/// which is the last argument. A text costs the server less than a list.
const WRAPPER: [&str; 2] = [
    "local function run()\n",
    "end
local reply, number = run(), ARGV[#ARGV]
if type(reply) ~= 'table' then return reply .. ' ' .. number end
reply[#reply + 1] = number
return reply
",
];

const EPOCH: &str = include_str!("../../../../lua/quorum/epoch.lua");
const VOTES: &str = include_str!("../../../../lua/quorum/votes.lua");

/// The scripts of a client: one for each verb, and the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ScriptId {
    Ask,
    Confirm,
    Renew,
    Release,
    Look,
    Inspect,
    Revoke,
    Probe,
    /// Of a node of a quorum, as is the next one.
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

const SOURCES: [(ScriptId, (&str, &str)); 8] = [
    (Ask, lua!("ask")),
    (Confirm, lua!("confirm")),
    (Renew, lua!("renew")),
    (Release, lua!("release")),
    (Look, lua!("look")),
    (Inspect, lua!("inspect")),
    (Revoke, lua!("revoke")),
    (Probe, lua!("probe")),
];

/// The scripts of a node of a quorum, where they are others.
const QUORUM_SOURCES: [(ScriptId, (&str, &str)); 7] = [
    (Ask, lua!("quorum/ask")),
    (Confirm, lua!("quorum/confirm")),
    (Renew, lua!("quorum/renew")),
    (Release, lua!("quorum/release")),
    (Revoke, lua!("quorum/revoke")),
    (Yield, lua!("quorum/yield")),
    (Repair, lua!("quorum/repair")),
];

#[derive(Debug)]
pub(crate) struct Scripts {
    used: BTreeMap<ScriptId, Arc<Script>>,
    /// Replace those at a node of a quorum.
    of_quorum: BTreeMap<ScriptId, Arc<Script>>,
}

impl Scripts {
    pub(crate) fn ours() -> Self {
        Self::edited(|_, source| source)
    }

    /// Ours, but for an edit of each source by its name, in which the fragments are included.
    pub(crate) fn edited(edit: impl Fn(&str, String) -> String) -> Self {
        let script = |(id, (name, source)): (ScriptId, (&str, &str))| {
            let source = source
                .replace("--@include next", NEXT)
                .replace("--@include quorum/epoch", EPOCH)
                .replace("--@include quorum/votes", VOTES);
            (id, Arc::new(Script::new(&edit(name, source))))
        };
        Scripts {
            used: SOURCES.map(script).into(),
            of_quorum: QUORUM_SOURCES.map(script).into(),
        }
    }

    /// The same for a node of a quorum.
    pub(crate) fn in_quorum(&self) -> Self {
        let (mut used, of_quorum) = (self.used.clone(), self.of_quorum.clone());
        used.extend(self.of_quorum.clone());
        Scripts { used, of_quorum }
    }

    /// The same for a cluster: a client has a channel in each slot, and is pushed to there.
    pub(crate) fn in_slots(&self) -> Self {
        let sharded = |(id, script): (&ScriptId, &Arc<Script>)| {
            let source = script.source.replace("'NUMSUB'", "'SHARDNUMSUB'");
            let source = source.replace("'PUBLISH'", "'SPUBLISH'");
            (*id, Arc::new(Script::hashed(source)))
        };
        Scripts {
            used: self.used.iter().map(sharded).collect(),
            of_quorum: BTreeMap::new(),
        }
    }

    /// Returns true if these are the scripts of a node of a quorum.
    pub(crate) fn are_of_quorum(&self) -> bool {
        self.used.contains_key(&Yield)
    }

    pub(crate) fn get(&self, id: ScriptId) -> &Script {
        &self.used[&id]
    }
}

/// A script, ready to be sent.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) source: String,
    pub(crate) hash: String,
}

/// How a script is named to the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    Hash,
    Source,
}

impl Script {
    fn new(source: &str) -> Self {
        let (fast, slow) = source.split_once(SLOW_PATH).unwrap_or(("", source));
        let (fast, slow) = (without_comments(fast), without_comments(slow));
        let [before, behind] = WRAPPER;
        Self::hashed(format!("{BEGIN}{fast}{before}{slow}{behind}"))
    }

    fn hashed(source: String) -> Self {
        let hash = sha1_smol::Sha1::from(&source).digest().to_string();
        Script { source, hash }
    }

    /// The beginning of the command that runs it.
    pub(crate) fn by(&self, by: By) -> Cmd {
        match by {
            By::Hash => {
                // Room for most commands: a hash, four keys, a handful of arguments.
                let mut cmd = Cmd::with_capacity(16, 512);
                cmd.arg("EVALSHA").arg(&self.hash);
                cmd
            }
            By::Source => {
                let mut cmd = redis::cmd("EVAL");
                cmd.arg(&self.source);
                cmd
            }
        }
    }

    /// The command that makes the server know it.
    pub(crate) fn load(&self) -> Cmd {
        let mut cmd = self.by(By::Source);
        cmd.arg(0);
        cmd
    }
}

/// Comments are for readers of `lua/`, not for the server.
fn without_comments(source: &str) -> String {
    let kept = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"));
    kept.map(|line| format!("{line}\n")).collect()
}

/// The server does not know the script: nothing was run.
pub(crate) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
