//! The definition of the command line.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use tracing_subscriber::filter::LevelFilter;

use crate::exit::TABLE;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "distlock",
    version,
    about = "Run commands under a distributed lock; inspect and revoke locks",
    after_help = TABLE,
    max_term_width = max_width(),
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads the command line of this process.
    pub(crate) fn from_command_line() -> Result<Self, clap::Error> {
        Self::try_parse()?.with_key()
    }

    /// Moves the key of `run -- KEY -- COMMAND`, the form for keys that begin with `-`, out of the
    /// command.
    fn with_key(mut self) -> Result<Self, clap::Error> {
        if let Command::Run(run) = &mut self.command
            && run.key.is_empty()
        {
            let dashes = run.command.get(1).is_some_and(|word| word == "--");
            if !dashes || run.command.len() < 3 {
                let text = "missing key: write `distlock run KEY -- COMMAND`";
                return Err(Cli::command().error(ErrorKind::MissingRequiredArgument, text));
            }
            let key = run.command.remove(0).into_string().map_err(|_| {
                Cli::command().error(ErrorKind::InvalidUtf8, "the key is not UTF-8")
            })?;
            run.command.remove(0);
            run.key = key;
        }
        Ok(self)
    }
}

/// Returns the width of `--help`: that of the terminal (clap's 0), and 80 columns elsewhere.
fn max_width() -> usize {
    if std::io::stdout().is_terminal() {
        0
    } else {
        80
    }
}

/// The options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// The URL of the lock store, such as redis://host:6379 or postgres://user@host/db [default: $DISTLOCK_URL, with
    /// $DISTLOCK_USERNAME and $DISTLOCK_PASSWORD]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The prefix of all keys in the store [default: $DISTLOCK_NAMESPACE, otherwise distlock]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Writes JSON, also for errors: one object, or one per line with `watch`
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How long connecting to the store may take
    #[arg(long, global = true, default_value = "5s", value_parser = duration, value_name = "TIME")]
    pub(crate) connect_timeout: Duration,
    /// Writes the log of the library to stderr, from this level on
    #[arg(long, global = true, value_parser = log_levels(), value_name = "LEVEL")]
    pub(crate) log_level: Option<LevelFilter>,
}

/// Returns the parser for the levels of the library's log.
fn log_levels() -> impl TypedValueParser<Value = LevelFilter> {
    let levels = PossibleValuesParser::new(["error", "warn", "info", "debug"]);
    levels.try_map(|level| level.parse::<LevelFilter>())
}

/// Returns the parser for a number of permits.
fn permits() -> impl TypedValueParser<Value = u32> {
    clap::value_parser!(u32).range(1..=1_000)
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a command while a lock is held
    Run(Run),
    /// Lists the held locks
    List {
        /// Only keys that begin with this
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Shows one lock: its holders, its waiters in order, and its last success
    Inspect {
        /// The key of the lock
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        key: String,
    },
    /// Revokes a lock from its holder, and waits until it is free
    Unlock(Unlock),
    /// Deletes the record of the last success of `run --once-per` or `--once-for`
    Forget(Forget),
    /// Shows holders, queues and rates while they change
    Watch(Watch),
    /// Checks whether a store is configured for locks
    #[command(after_help = TABLE)]
    Doctor {
        /// The store to check [default: that of --url]
        #[arg(value_name = "URL")]
        store: Option<String>,
    },
    /// Installs or updates what locks need in a PostgreSQL database; a Redis store needs nothing
    #[command(after_help = TABLE)]
    Install {
        /// The store to install in, with a role that may create schemas [default: that of --url]
        #[arg(value_name = "URL")]
        store: Option<String>,
    },
    /// Writes the completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// The second process of `run`, which ends the command when the first one cannot.
    #[command(hide = true)]
    Keeper,
    /// Becomes a command that does not outlive its parent.
    #[command(hide = true)]
    Become {
        parent: i32,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// The options of `run`.
#[derive(Debug, Args)]
#[command(
    after_help = TABLE,
    override_usage = "distlock run [OPTIONS] <KEY> -- <COMMAND>...\n       distlock run [OPTIONS] -- <KEY> -- <COMMAND>..."
)]
pub(crate) struct Run {
    /// How long the lock outlives its last renewal: how soon it is free after a crash of this
    /// machine, and how long an outage of the store it survives [default: $DISTLOCK_LEASE,
    /// otherwise 15s]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) lease: Option<Duration>,
    /// How long to wait for the lock; 0 makes one attempt [default: $DISTLOCK_WAIT, otherwise 10s]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) wait: Option<Duration>,
    /// How the command is stopped when the lock is about to be lost
    #[arg(long, value_enum, default_value = "term", value_name = "HOW")]
    pub(crate) on_lost: OnLost,
    /// How long after SIGTERM the command is killed, and how long before the loss SIGTERM is sent
    /// with `--on-lost term`; at most half of the lease [default: a third of the lease]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) kill_after: Option<Duration>,
    /// Runs up to this many commands with the key at a time; while runs pass different
    /// numbers, the largest is the limit
    #[arg(long, value_parser = permits(), conflicts_with_all = ["read", "write"], value_name = "N")]
    pub(crate) permits: Option<u32>,
    /// How many of the permits the command holds
    #[arg(long, default_value = "1", requires = "permits", value_parser = permits(), value_name = "N")]
    pub(crate) weight: u32,
    /// Runs the command next to other readers of the key
    #[arg(long, conflicts_with = "write")]
    pub(crate) read: bool,
    /// Runs the command alone, without readers or other writers of the key
    #[arg(long)]
    pub(crate) write: bool,
    /// Records at most one success per period on all machines: if the command has succeeded (exit
    /// code 0) within the period, it does not run, and the exit code is 0
    #[arg(
        long,
        value_parser = duration,
        conflicts_with_all = ["permits", "read", "write", "once_for", "record_ttl"],
        value_name = "TIME"
    )]
    pub(crate) once_per: Option<Duration>,
    /// Records at most one success for this value, such as a date: if the command has succeeded
    /// for the value, it does not run, and the exit code is 0
    #[arg(
        long,
        value_parser = NonEmptyStringValueParser::new(),
        conflicts_with_all = ["permits", "read", "write"],
        value_name = "VALUE"
    )]
    pub(crate) once_for: Option<String>,
    /// How long a success of `--once-for` is remembered [default: 7d]
    #[arg(long, requires = "once_for", value_parser = duration, value_name = "TIME")]
    pub(crate) record_ttl: Option<Duration>,
    /// The key of the lock; one that begins with `-` is written after `--`, and `--` after it
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) key: String,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// How a command is stopped when its lock is about to be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// SIGTERM while there is time, then SIGKILL before another client can acquire the lock
    Term,
    /// SIGKILL before another client can acquire the lock, and no earlier signal
    Kill,
}

/// The options of `unlock`.
#[derive(Debug, Args)]
#[command(after_help = TABLE)]
pub(crate) struct Unlock {
    /// The key of the lock
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) key: String,
    /// Revokes only the holds of this client, as `inspect` shows it; of readers that hold the lock
    /// together, all are revoked
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), value_name = "CLIENT")]
    pub(crate) holder: Option<String>,
    /// How long to wait until it is free
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "TIME")]
    pub(crate) wait: Duration,
    /// Waits until the lock is free, at most until the holder's lease and grace period expire
    #[arg(long)]
    pub(crate) wait_until_free: bool,
    /// Assumes that the holder's process is dead: the lock is deleted at once, unless the server
    /// still sees a connection of its client
    #[arg(long, requires = "wait_until_free")]
    pub(crate) assume_holder_dead: bool,
}

/// The options of `forget`.
#[derive(Debug, Args)]
#[command(after_help = TABLE)]
pub(crate) struct Forget {
    /// The key of the lock
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) key: String,
    /// The value of `--once-for`, without which the record is that of `--once-per`
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), value_name = "VALUE")]
    pub(crate) once_for: Option<String>,
}

/// The options of `watch`.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Only keys that begin with this
    #[arg(default_value = "")]
    pub(crate) prefix: String,
    /// The interval between two queries
    #[arg(long, default_value = "1s", value_parser = duration, value_name = "TIME")]
    pub(crate) interval: Duration,
    /// Writes a line for each change, as it does without a terminal
    #[arg(long)]
    pub(crate) plain: bool,
}

/// Parses a duration such as `500ms`, `15s` or `1m30s`. A plain `0` is zero.
fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write 500ms, 15s, 2m or 1m30s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_are_written_as_elsewhere() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500),
            ("15s", 15_000),
            ("1m30s", 90_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        let error = duration("15").expect_err("a number without a unit");
        assert!(error.contains("15s"), "{error}");
    }

    #[test]
    fn keys_and_options_of_the_command_may_begin_with_a_dash() {
        let run = |words: &str| {
            let words = ["distlock", "run"].into_iter().chain(words.split(' '));
            match Cli::try_parse_from(words)?.with_key()?.command {
                Command::Run(run) => Ok((run.key, run.command)),
                other => panic!("{other:?}"),
            }
        };
        let read = |words: &str| run(words).map_err(|error: clap::Error| error.kind());
        for (words, key, command) in [
            ("-- -k -- ls -l", "-k", &["ls", "-l"][..]),
            (
                "--wait 0 -- --json -- ls -- -l",
                "--json",
                &["ls", "--", "-l"],
            ),
            ("k -- -k -- ls", "k", &["-k", "--", "ls"]),
            ("k -- ls --json -l", "k", &["ls", "--json", "-l"]),
        ] {
            let command = command.iter().map(OsString::from).collect();
            assert_eq!(read(words), Ok((key.to_owned(), command)), "{words}");
        }
        for words in ["-- ls", "-- ls -l", "-- -k --"] {
            assert_eq!(
                read(words),
                Err(ErrorKind::MissingRequiredArgument),
                "{words}"
            );
        }
    }
}
