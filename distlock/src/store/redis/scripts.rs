//! The Lua scripts, sent by hash and, where the server does not know them, by source.

use once_cell::sync::Lazy;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};

/// The fragment that `--@include next` stands for.
const NEXT: &str = include_str!("../../../lua/next.lua");

pub(super) static ASK: Lazy<Script> =
    Lazy::new(|| Script::new(include_str!("../../../lua/ask.lua")));
pub(super) static CONFIRM: Lazy<Script> =
    Lazy::new(|| Script::new(include_str!("../../../lua/confirm.lua")));
pub(super) static RENEW: Lazy<Script> =
    Lazy::new(|| Script::new(include_str!("../../../lua/renew.lua")));
pub(super) static RELEASE: Lazy<Script> =
    Lazy::new(|| Script::new(include_str!("../../../lua/release.lua")));
pub(super) static LOOK: Lazy<Script> =
    Lazy::new(|| Script::new(include_str!("../../../lua/look.lua")));
pub(super) static INSPECT: Lazy<Script> =
    Lazy::new(|| Script::new(include_str!("../../../lua/inspect.lua")));

/// A script, ready to be sent.
#[derive(Debug)]
pub(super) struct Script {
    source: String,
    hash: String,
}

impl Script {
    fn new(source: &str) -> Self {
        let source = source.replace("--@include next", NEXT);
        #[cfg(sabotage)]
        let source = crate::sabotage::script(source);
        let source = without_comments(&source);
        let hash = sha1_smol::Sha1::from(&source).digest().to_string();
        Script { source, hash }
    }

    pub(super) fn by_hash(&self) -> Cmd {
        // Room for most commands: a hash, four keys, a handful of arguments.
        let mut cmd = Cmd::with_capacity(16, 512);
        cmd.arg("EVALSHA").arg(&self.hash);
        cmd
    }

    pub(super) fn by_source(&self) -> Cmd {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(&self.source);
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
pub(super) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
