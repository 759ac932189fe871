//! The Lua scripts, sent by hash and, where the server does not know them, by source.

use std::fmt;
use std::sync::Arc;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};

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
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) ask: Script,
    pub(crate) confirm: Script,
    pub(crate) renew: Script,
    pub(crate) release: Script,
    pub(crate) look: Script,
    pub(crate) inspect: Script,
    pub(crate) revoke: Script,
    pub(crate) probe: Script,
    /// Of a node of a quorum.
    pub(crate) votes: Option<VoteScripts>,
    edit: Edit,
}

/// What is said to a node of a quorum alone.
#[derive(Debug)]
pub(crate) struct VoteScripts {
    pub(crate) ask: Script,
    pub(crate) yields: Script,
    pub(crate) confirm: Script,
    pub(crate) renew: Script,
    pub(crate) repair: Script,
}

/// What a script's text becomes, by its name in `lua/`.
type OfText = dyn Fn(&str, String) -> String + Send + Sync;

#[derive(Clone)]
struct Edit(Arc<OfText>);

impl fmt::Debug for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Edit")
    }
}

impl Edit {
    fn script(&self, name: &str, source: &str) -> Script {
        let source = source
            .replace("--@include next", NEXT)
            .replace("--@include quorum/epoch", EPOCH)
            .replace("--@include quorum/votes", VOTES);
        Script::new(&(self.0)(name, source))
    }
}

impl Scripts {
    pub(crate) fn ours() -> Self {
        Self::edited(|_, source| source)
    }

    /// Ours, but for an edit of each source, in which the fragments are included.
    pub(crate) fn edited(edit: impl Fn(&str, String) -> String + Send + Sync + 'static) -> Self {
        let edit = Edit(Arc::new(edit));
        Scripts {
            ask: edit.script("ask", include_str!("../../../../lua/ask.lua")),
            confirm: edit.script("confirm", include_str!("../../../../lua/confirm.lua")),
            renew: edit.script("renew", include_str!("../../../../lua/renew.lua")),
            release: edit.script("release", include_str!("../../../../lua/release.lua")),
            look: edit.script("look", include_str!("../../../../lua/look.lua")),
            inspect: edit.script("inspect", include_str!("../../../../lua/inspect.lua")),
            revoke: edit.script("revoke", include_str!("../../../../lua/revoke.lua")),
            probe: edit.script("probe", include_str!("../../../../lua/probe.lua")),
            votes: None,
            edit,
        }
    }

    /// The same for a node of a quorum.
    pub(crate) fn in_quorum(&self) -> Self {
        let script = |name, source| self.edit.script(name, source);
        let edit = self.edit.clone();
        Scripts {
            release: script(
                "quorum/release",
                include_str!("../../../../lua/quorum/release.lua"),
            ),
            revoke: script(
                "quorum/revoke",
                include_str!("../../../../lua/quorum/revoke.lua"),
            ),
            votes: Some(VoteScripts {
                ask: script("quorum/ask", include_str!("../../../../lua/quorum/ask.lua")),
                yields: script(
                    "quorum/yield",
                    include_str!("../../../../lua/quorum/yield.lua"),
                ),
                confirm: script(
                    "quorum/confirm",
                    include_str!("../../../../lua/quorum/confirm.lua"),
                ),
                renew: script(
                    "quorum/renew",
                    include_str!("../../../../lua/quorum/renew.lua"),
                ),
                repair: script(
                    "quorum/repair",
                    include_str!("../../../../lua/quorum/repair.lua"),
                ),
            }),
            ..Self::edited(move |name, source| (edit.0)(name, source))
        }
    }

    /// The same for a cluster: a client has a channel in each slot, and is pushed to there.
    pub(crate) fn in_slots(&self) -> Self {
        let sharded = |script: &Script| {
            let source = script.source.replace("'NUMSUB'", "'SHARDNUMSUB'");
            Script::hashed(source.replace("'PUBLISH'", "'SPUBLISH'"))
        };
        Scripts {
            ask: sharded(&self.ask),
            confirm: sharded(&self.confirm),
            renew: sharded(&self.renew),
            release: sharded(&self.release),
            look: sharded(&self.look),
            inspect: sharded(&self.inspect),
            revoke: sharded(&self.revoke),
            probe: sharded(&self.probe),
            votes: None,
            edit: self.edit.clone(),
        }
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
