//! `servers.sh` itself: it ends whenever it is told to, leaves nothing behind, and lets a command have the terminal.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::until;

/// A folder for everything that it keeps, which PostgreSQL's user can enter.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new("/tmp").join(format!("shop-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    /// Whether one of the folders in it has such a file.
    fn keeps(&self, file: &str) -> bool {
        let mut kept = fs::read_dir(&self.0).unwrap().map(|kept| kept.unwrap());
        kept.any(|kept| kept.path().join(file).exists())
    }

    /// Whether a process works in it, as each of the servers does.
    fn is_used(&self) -> bool {
        let mut processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
        processes.any(|process| {
            fs::read_link(process.path().join("cwd")).is_ok_and(|at| at.starts_with(&self.0))
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn servers() -> Command {
    Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/servers.sh"))
}

#[tokio::test]
async fn told_to_end_while_a_server_starts_it_leaves_nothing_behind() {
    for (name, signal, moment) in [
        ("term", Signal::SIGTERM, "initdb.log"),
        ("int", Signal::SIGINT, "postgres.log"),
        ("hup", Signal::SIGHUP, "redis.log"),
    ] {
        let folder = Folder::new(name);
        // It waits for its last server for ever: a program of that name that never says that it is ready.
        let slow = Folder::new(&format!("{name}-slow"));
        fs::write(slow.0.join("redis-server"), "#!/bin/sh\nexec sleep 3600\n").unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(slow.0.join("redis-server"), executable).unwrap();
        let path = format!("{}:{}", slow.0.display(), std::env::var("PATH").unwrap());
        let mut script = servers()
            .arg("true")
            .envs([("TMPDIR", folder.0.as_os_str()), ("PATH", path.as_ref())])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        until("it is that far", async || folder.keeps(moment)).await;
        kill(Pid::from_raw(script.id().try_into().unwrap()), signal).unwrap();
        until("it ends", async || script.try_wait().unwrap().is_some()).await;
        assert!(!folder.is_used(), "{signal}: a server was left behind");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0, "{signal}");
    }
}

#[tokio::test]
async fn a_command_reads_from_the_terminal() {
    let folder = Folder::new("terminal");
    let line = format!(
        "{} sh -c 'read -r line; echo got-$line'",
        servers().get_program().to_str().unwrap()
    );
    // `script` of util-linux gives it a terminal.
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &line, "/dev/null"]);
    terminal.env("TMPDIR", &folder.0);
    let mut terminal = terminal
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keyboard = terminal.stdin.take().unwrap();
    std::io::Write::write_all(&mut keyboard, b"word\n").unwrap();
    until("the command has read and ended", async || {
        terminal.try_wait().unwrap().is_some()
    })
    .await;
    let output = terminal.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("got-word"), "{shown}");
}
