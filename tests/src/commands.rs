//! The commands of a document, run as a reader pastes them, on ports that are free.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::documents::{blocks, document};
use crate::wait::eventually;

/// A block of commands: ```` ```sh name ````, or ```` ```console name ````, in which they stand behind `$ ` and what they say
/// below them.
#[derive(Debug)]
pub struct Commands {
    name: String,
    text: String,
    output: String,
    dir: TempDir,
    path: String,
    variables: Vec<(String, String)>,
}

/// What commands have said.
#[derive(Debug)]
pub struct Said {
    /// To stdout, all of them together.
    pub stdout: String,
    /// To stderr, with each command before that.
    pub stderr: String,
    /// How they ended.
    pub status: ExitStatus,
    dir: TempDir,
}

impl Said {
    /// The folder in which they ran, with what they left there.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Commands {
    /// Those of this name in a document, whose path is below the workspace.
    ///
    /// # Panics
    ///
    /// When there is not one such block.
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
        // Where Debian keeps what only root runs.
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

    /// What they are documented to say.
    pub fn output(&self) -> &str {
        &self.output
    }

    /// The folder in which they run, which is empty.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Puts this build, or this test's server, where the document has a reader's.
    ///
    /// # Panics
    ///
    /// When they do not have it.
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

    /// The same, if they have it.
    #[must_use]
    pub fn instead_of_each(mut self, documented: &str, here: &str) -> Commands {
        self.text = self.text.replace(documented, here);
        self
    }

    /// Has them find the program there first, by its name.
    #[must_use]
    pub fn with_program(mut self, program: &str) -> Commands {
        let folder = Path::new(program).parent().expect("a folder of a program");
        self.path = format!("{}:{}", folder.display(), self.path);
        self
    }

    /// Sets a variable of their environment.
    #[must_use]
    pub fn with(mut self, variable: &str, value: &str) -> Commands {
        self.variables.push((variable.to_owned(), value.to_owned()));
        self
    }

    /// Goes on with the block of this name, in the same shell.
    ///
    /// # Panics
    ///
    /// As [`Commands::of`].
    #[track_caller]
    #[must_use]
    pub fn then(mut self, path: &str, name: &str) -> Commands {
        let next = Commands::of(path, name);
        self.name = format!("{}, {name}", self.name);
        self.text += &next.text;
        self.output += &next.output;
        self
    }

    /// Runs them, in a shell that ends at the first that fails, and has free ports for 6379 and for each number
    /// that begins with 70.
    ///
    /// # Panics
    ///
    /// When one of them fails, or they take too long.
    #[track_caller]
    pub fn run(self, too_long: Duration) -> Said {
        let name = self.name.clone();
        let said = self.end(too_long);
        assert!(said.status.success(), "{name}: {}", said.status);
        said
    }

    /// The same, and they may fail.
    ///
    /// # Panics
    ///
    /// When they take too long.
    #[track_caller]
    pub fn end(self, too_long: Duration) -> Said {
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
            let bytes = fs::read(path).expect("what they said");
            String::from_utf8_lossy(&bytes).into_owned()
        });
        println!("{stdout}{stderr}");
        Said {
            stdout,
            stderr,
            status: ended.expect("an end"),
            dir: self.dir,
        }
    }
}

/// The server's binary.
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

/// One whose cluster bus would be free as well, and that nobody gets who takes any.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let from = 10_000 + u16::try_from(std::process::id() % 5_000).expect("a small number");
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let port = from + NEXT.fetch_add(1, Ordering::Relaxed);
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
}

/// What is still there of commands that failed ends with the test.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let mut kill = Command::new("kill");
        // Nothing is left of those that worked.
        let _ = kill
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
        let _ = self.0.wait();
    }
}
