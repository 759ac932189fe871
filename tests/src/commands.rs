//! Runs the commands of a document as a reader would paste them, on free ports.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::documents::{blocks, document};
use crate::ports::free_port;
use crate::wait::eventually;

/// A block of commands: ```` ```sh name ````, or ```` ```console name ````. In a `console` block
/// the commands follow `$ `, and their output is below them.
#[derive(Debug)]
pub struct Commands {
    name: String,
    text: String,
    output: String,
    dir: TempDir,
    path: String,
    variables: Vec<(String, String)>,
}

/// The output and exit status of a run.
#[derive(Debug)]
pub struct CommandOutput {
    /// The stdout of all commands together.
    pub stdout: String,
    /// The stderr of all commands, with every command before its output.
    pub stderr: String,
    /// The exit status of the shell.
    pub status: ExitStatus,
    dir: TempDir,
}

impl CommandOutput {
    /// Returns the folder in which the commands ran, with the files that they left there.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Commands {
    /// Returns the block of this name in the document at `path`, relative to the workspace.
    ///
    /// # Panics
    ///
    /// Panics unless there is exactly one such block.
    #[track_caller]
    pub fn of(path: &str, name: &str) -> Commands {
        let mut found = blocks(&document(path));
        found.retain(|block| ["sh", "console"].contains(&&*block.language) && block.name == name);
        let [block] = &found[..] else {
            panic!("{path} has {} blocks of the name {name}", found.len());
        };
        let (mut text, mut output) = (String::new(), String::new());
        for line in block.text.lines() {
            let of = match line.strip_prefix("$ ") {
                Some(command) if block.language == "console" => (&mut text, command),
                _ if block.language == "console" => (&mut output, line),
                _ => (&mut text, line),
            };
            *of.0 += of.1;
            of.0.push('\n');
        }
        // Debian installs programs for root there.
        let path = format!("{}:/usr/sbin", env::var("PATH").expect("a PATH"));
        Commands {
            name: name.to_owned(),
            text,
            output,
            dir: tempfile::tempdir().expect("a folder"),
            path,
            variables: Vec::new(),
        }
        .instead_of_each("redis-server ", &format!("{} ", redis_server()))
    }

    /// Returns the documented output.
    pub fn output(&self) -> &str {
        &self.output
    }

    /// Returns the folder in which the commands will run; it is empty.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Replaces `documented` with `here`, which names this build, or the server of this test.
    ///
    /// # Panics
    ///
    /// Panics if the commands do not contain `documented`.
    #[track_caller]
    #[must_use]
    pub fn instead_of(self, documented: &str, here: &str) -> Commands {
        assert!(
            self.text.contains(documented),
            "{}: no {documented:?} in\n{}",
            self.name,
            self.text
        );
        self.instead_of_each(documented, here)
    }

    /// Like [`instead_of`](Commands::instead_of), but does nothing if `documented` is missing.
    #[must_use]
    pub fn instead_of_each(mut self, documented: &str, here: &str) -> Commands {
        self.text = self.text.replace(documented, here);
        self
    }

    /// Puts the folder of this program first in the `PATH` of the commands.
    #[must_use]
    pub fn with_program(mut self, program: &str) -> Commands {
        let folder = Path::new(program).parent().expect("a folder of a program");
        self.path = format!("{}:{}", folder.display(), self.path);
        self
    }

    /// Sets an environment variable of the commands.
    #[must_use]
    pub fn with(mut self, variable: &str, value: &str) -> Commands {
        self.variables.push((variable.to_owned(), value.to_owned()));
        self
    }

    /// Appends the block of this name, which then runs in the same shell.
    ///
    /// # Panics
    ///
    /// Panics like [`Commands::of`].
    #[track_caller]
    #[must_use]
    pub fn then(mut self, path: &str, name: &str) -> Commands {
        let next = Commands::of(path, name);
        self.name = format!("{}, {name}", self.name);
        self.text += &next.text;
        self.output += &next.output;
        self
    }

    /// Runs the commands in a shell that ends at the first command that fails. Replaces 6379, and
    /// every four-digit number that begins with 70, with a free port.
    ///
    /// # Panics
    ///
    /// Panics if a command fails, or the commands run longer than `too_long`.
    #[track_caller]
    pub fn run(self, too_long: Duration) -> CommandOutput {
        let name = self.name.clone();
        let output = self.end(too_long);
        assert!(output.status.success(), "{name}: {}", output.status);
        output
    }

    /// Like [`run`](Commands::run), but the commands may fail.
    ///
    /// # Panics
    ///
    /// Panics if the commands run longer than `too_long`.
    #[track_caller]
    pub fn end(self, too_long: Duration) -> CommandOutput {
        let logs = tempfile::tempdir().expect("a folder");
        let [stdout, stderr] = ["stdout", "stderr"].map(|name| logs.path().join(name));
        let into = |path: &Path| File::create(path).expect("a file");
        let mut shell = Command::new("bash");
        shell
            .args(["-euxo", "pipefail", "-c", &on_free_ports(&self.text)])
            .current_dir(self.dir())
            .env("TMPDIR", self.dir())
            .env("PATH", &self.path)
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(into(&stdout))
            .stderr(into(&stderr))
            .process_group(0);
        let mut shell = Group(shell.spawn().expect("bash can be run"));
        let mut ended = None;
        eventually(too_long, || {
            ended = shell.0.try_wait().expect("a child");
            ended.is_some()
        });
        drop(shell);
        let [stdout, stderr] = [stdout, stderr].map(|path| {
            let bytes = fs::read(path).expect("the output");
            String::from_utf8_lossy(&bytes).into_owned()
        });
        println!("{stdout}{stderr}");
        CommandOutput {
            stdout,
            stderr,
            status: ended.expect("an end"),
            dir: self.dir,
        }
    }
}

fn redis_server() -> String {
    env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}

fn on_free_ports(commands: &str) -> String {
    let mut ports = BTreeMap::new();
    let mut replaced = String::new();
    for word in commands.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let number = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        if number == "6379" || (number.len() == 4 && number.starts_with("70")) {
            let port = ports.entry(number).or_insert_with(free_port);
            replaced += &port.to_string();
            replaced += &word[number.len()..];
        } else {
            replaced += word;
        }
    }
    replaced
}

/// The process group of the shell. Dropping it kills the processes that commands left behind.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let mut kill = Command::new("kill");
        // Fails if the group has no processes left, as after commands that succeeded.
        let _ = kill
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
        let _ = self.0.wait();
    }
}
