//! The Lua scripts, sent by hash and, where the server does not know them, by source.

use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::sync::Lazy;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::Mutex;

/// The fragment that `--@include next` stands for.
const NEXT: &str = include_str!("../../../lua/next.lua");

/// Every script begins with this: run without keys it does nothing, and the server knows it from then on.
/// `SCRIPT LOAD` would need a right of its own.
const WITHOUT_KEYS: &str = "if not KEYS[1] then return 0 end\n";

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
pub(super) static PROBE: Lazy<Script> =
    Lazy::new(|| Script::new(include_str!("../../../lua/probe.lua")));

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
        let source = format!("{WITHOUT_KEYS}{}", without_comments(&source));
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

/// The scripts that a connection uses. The server was made to know them when it was opened, and is again
/// when it has forgotten them: once, however many commands find it out.
#[derive(Debug)]
pub(super) struct Known {
    scripts: Vec<&'static Script>,
    /// How often they were loaded.
    loaded: AtomicU64,
    loading: Mutex<()>,
}

impl Known {
    pub(super) fn all() -> Self {
        Self::these(vec![&ASK, &CONFIRM, &RENEW, &RELEASE, &LOOK, &INSPECT])
    }

    pub(super) fn renew() -> Self {
        Self::these(vec![&RENEW])
    }

    fn these(scripts: Vec<&'static Script>) -> Self {
        Known {
            scripts,
            loaded: AtomicU64::new(0),
            loading: Mutex::default(),
        }
    }

    pub(super) fn load_with(&self, pipe: &mut Pipeline) {
        for script in &self.scripts {
            let mut cmd = script.by_source();
            cmd.arg(0);
            pipe.add_command(cmd);
        }
    }

    /// How often they were loaded: to be read before a command is sent.
    pub(super) fn loaded(&self) -> u64 {
        self.loaded.load(Ordering::Acquire)
    }

    /// Loads them, unless that was done since `seen`.
    pub(super) async fn load_again(
        &self,
        connection: &mut MultiplexedConnection,
        seen: u64,
    ) -> RedisResult<()> {
        let _turn = self.loading.lock().await;
        if self.loaded() != seen {
            return Ok(());
        }
        let mut pipe = redis::pipe();
        self.load_with(&mut pipe);
        let replies: Vec<RedisResult<Value>> = pipe.ignore_errors().query_async(connection).await?;
        self.loaded.fetch_add(1, Ordering::Release);
        replies.into_iter().try_for_each(|reply| reply.map(drop))
    }
}
