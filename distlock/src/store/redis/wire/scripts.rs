//! The Lua scripts, sent by hash, or as source if the server does not know them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use once_cell::sync::Lazy;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};

use self::ScriptForm::{Counted, Mutex, Once};
use self::ScriptId::{
    Acquire, AcquireAll, CheckQueue, Confirm, DeleteRecord, Downgrade, Inspect, Probe, Release,
    Renew, Revoke,
};
use crate::error::LockKind;
use crate::util::clock::BootInstant;

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
    AcquireAll,
    /// Only for calls that run at most once.
    DeleteRecord,
}

/// The form of a script. The same command has several, for different locks or calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ScriptForm {
    Mutex,
    Counted,
    /// For calls that run at most once.
    Once,
}

impl ScriptForm {
    pub(crate) fn of(kind: LockKind, runs_once: bool) -> Self {
        match kind {
            _ if runs_once => Once,
            LockKind::Mutex => Mutex,
            LockKind::ReadWrite | LockKind::Semaphore { .. } => Counted,
        }
    }

    /// Returns a kind of locks whose scripts fail at the keys of this form's (K1).
    pub(crate) fn other_kind(self) -> LockKind {
        match self {
            Mutex | Once => LockKind::ReadWrite,
            Counted => LockKind::Mutex,
        }
    }

    /// Upper limit of the holds that one script renews, so that it does not block the server. A
    /// counted one takes twice as many commands.
    pub(crate) fn max_renewals(self) -> usize {
        match self {
            Mutex | Once => 500,
            Counted => 250,
        }
    }
}

/// A script's name in `lua/`, and its text.
pub(crate) type Source = (&'static str, &'static str);

/// Returns a [`Source`] by its name. Only for files in folders beside this one.
macro_rules! lua {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../../lua/", $name, ".lua")),
        )
    };
}

pub(crate) use lua;

/// The fragments, by the name in the lines that include them. A fragment may include later ones.
pub(crate) const FRAGMENTS: [Source; 8] = [
    lua!("acquire"),
    lua!("confirm"),
    lua!("enter"),
    lua!("leave"),
    lua!("next"),
    lua!("queue"),
    lua!("fence"),
    lua!("once/record"),
];

/// The fragments that each kind has its own of: how it stores its holders.
const OWN_FRAGMENTS: [(ScriptForm, Source); 6] = [
    (Mutex, ("holders", lua!("mutex/holders").1)),
    (Mutex, ("extend", lua!("mutex/extend").1)),
    (Once, ("holders", lua!("mutex/holders").1)),
    (Once, ("extend", lua!("mutex/extend").1)),
    (Counted, ("holders", lua!("counted/holders").1)),
    (Counted, ("extend", lua!("counted/extend").1)),
];

pub(crate) const SOURCES: [(ScriptForm, ScriptId, Source); 21] = [
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
    (Counted, Confirm, lua!("confirm")),
    (Counted, Renew, lua!("renew")),
    (Counted, Downgrade, lua!("counted/downgrade")),
    (Counted, Release, lua!("counted/release")),
    (Counted, CheckQueue, lua!("check_queue")),
    (Counted, Inspect, lua!("inspect")),
    (Counted, Revoke, lua!("revoke")),
    (Once, Acquire, lua!("once/acquire")),
    (Once, Confirm, lua!("once/confirm")),
    (Once, Release, lua!("once/release")),
    (Once, DeleteRecord, lua!("once/delete")),
];

/// Changes a source, which it gets with its name. Tests use it to break a rule.
type Edit = dyn Fn(&str, String) -> String + Send + Sync;

pub(crate) struct Scripts {
    scripts: BTreeMap<(ScriptForm, ScriptId), Arc<Script>>,
    edit: Arc<Edit>,
}

impl Scripts {
    /// Returns our scripts. They are assembled and hashed once in a process.
    pub(crate) fn bundled() -> Arc<Self> {
        static BUNDLED: Lazy<Arc<Scripts>> =
            Lazy::new(|| Arc::new(Scripts::edited(|_, source| source)));
        BUNDLED.clone()
    }

    /// Returns our scripts after an edit of each source by its name. Fragments are included first.
    pub(crate) fn edited(edit: impl Fn(&str, String) -> String + Send + Sync + 'static) -> Self {
        let none = Scripts {
            scripts: BTreeMap::new(),
            edit: Arc::new(edit),
        };
        none.with(SOURCES, &FRAGMENTS)
    }

    /// Returns these scripts with others added, or in their place.
    pub(crate) fn with(
        &self,
        sources: impl IntoIterator<Item = (ScriptForm, ScriptId, Source)>,
        fragments: &[Source],
    ) -> Self {
        let include = |source: String, (name, fragment): &Source| {
            source.replace(&format!("--@include {name}\n"), fragment)
        };
        let mut scripts = self.scripts.clone();
        scripts.extend(sources.into_iter().map(|(form, id, (name, source))| {
            let source = fragments.iter().fold(source.to_owned(), include);
            let own = OWN_FRAGMENTS.iter().filter(|(of, _)| *of == form);
            let own = own.map(|(_, fragment)| fragment);
            let source = own.fold(source, include);
            let source = include(source, &lua!("time"));
            (
                (form, id),
                Arc::new(Script::new(&(self.edit)(name, source))),
            )
        }));
        Scripts {
            scripts,
            edit: self.edit.clone(),
        }
    }

    /// Returns these scripts after a change of what is sent.
    pub(crate) fn map(&self, change: impl Fn(&str) -> String) -> Self {
        let scripts = self.scripts.iter().map(|(id, script)| {
            let changed = Script::hashed(change(&script.source));
            (*id, Arc::new(changed))
        });
        Scripts {
            scripts: scripts.collect(),
            edit: self.edit.clone(),
        }
    }

    /// Returns a script in the form for mutexes.
    pub(crate) fn get(&self, id: ScriptId) -> &Script {
        self.in_form(Mutex, id)
    }

    pub(crate) fn in_form(&self, form: ScriptForm, id: ScriptId) -> &Script {
        &self.scripts[&(form, id)]
    }
}

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripts").finish_non_exhaustive()
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

/// A function that encodes a command to be sent at an instant. Without a type parameter, its
/// senders are compiled once.
pub(crate) type EncodeCommand<'a> = dyn Fn(ScriptRef, BootInstant) -> Cmd + Sync + 'a;

impl Script {
    fn new(source: &str) -> Self {
        let (fast, slow) = source.split_once(SLOW_PATH_MARKER).unwrap_or(("", source));
        let (fast, slow) = (without_comments(fast), without_comments(slow));
        let slow = in_order_of_use(&slow);
        let [prefix, suffix] = WRAPPER;
        Self::hashed(format!("{fast}{prefix}{slow}{suffix}"))
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
}

/// Removes comments, which are for readers of `lua/`, not for the server.
fn without_comments(source: &str) -> String {
    let kept = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"));
    kept.map(|line| format!("{line}\n")).collect()
}

/// Moves each function to the first statement that needs it, and leaves out those that nothing
/// calls. A function that a call of the script creates costs it 0.1 µs.
fn in_order_of_use(source: &str) -> String {
    // A statement or function begins with a line that is not indented.
    let is_continued = |line: &str| {
        line.starts_with([' ', '}']) || line.starts_with("end") || line.starts_with("else")
    };
    let mut items: Vec<String> = Vec::new();
    for line in source.lines() {
        match items.last_mut() {
            Some(item) if is_continued(line) => *item += &format!("{line}\n"),
            _ => items.push(format!("{line}\n")),
        }
    }
    let (mut functions, mut ordered) = (Vec::new(), String::new());
    for item in &items {
        match item
            .strip_prefix("local function ")
            .and_then(|item| item.split_once('('))
        {
            Some((name, _)) => functions.push((name, item.as_str())),
            None => append_needed(item, &mut functions, &mut ordered),
        }
    }
    ordered
}

/// Appends an item of a script, and before it the functions that it needs.
fn append_needed<'a>(item: &str, functions: &mut Vec<(&'a str, &'a str)>, ordered: &mut String) {
    let is_in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: BTreeSet<_> = item.split(|c| !is_in_name(c)).collect();
    let is_needed = |(name, _): &(&str, &str)| words.contains(name);
    while let Some(index) = functions.iter().position(is_needed) {
        let (_, function) = functions.remove(index);
        append_needed(function, functions, ordered);
    }
    *ordered += item;
}

/// Returns true if the server does not know the script. Nothing was run.
pub(crate) fn is_noscript(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
