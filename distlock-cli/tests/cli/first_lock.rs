//! The first screen of README.md and the first chapter of the book, typed from beginning to end: a
//! new project, with the library of this workspace.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs};

use distlock_tests::Commands;
use distlock_tests::documents::{blocks, document, workspace};

const README: &str = "README.md";
const CHAPTER: &str = "docs/guide/first-lock.md";

/// Timeout for building the library and its dependencies, on a loaded machine.
const TOO_LONG: Duration = Duration::from_secs(550);

/// Replaces a second that a reader waits by its purpose: one call has the lock, and one waits. If
/// that never happens, the output shows why.
const UNTIL_WAITED_FOR: &str = "for _ in $(seq 600); do \
    if redis-cli exists 'distlock:queue:{stock:apples}' | grep -qx 1; then break; fi; sleep 0.05; done";

/// Returns the program that the reader pastes from the document.
fn program(path: &str) -> String {
    let blocks = blocks(&document(path));
    let mut rust = blocks
        .into_iter()
        .filter(|block| block.language.starts_with("rust"));
    let program = rust.next().expect("a program");
    assert_eq!(rust.next(), None);
    program.text
}

/// Returns the build directory, which the next run reuses.
fn target() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    workspace().join(target).join("first-lock")
}

/// Prepares the commands of a document: its program is beside the project, and the project gets the
/// library of this workspace, with the versions that it was tested with. Nothing is downloaded.
fn with_this_library(commands: Commands, path: &str, project: &str, add: &str) -> Commands {
    fs::write(commands.dir().join("main.rs"), program(path)).expect("a program");
    let root = workspace();
    let root = root.display();
    let cd = format!("cd {project}\n");
    commands
        .instead_of(&cd, &format!("{cd}cp {root}/Cargo.lock .\n"))
        .instead_of(add, &format!("cargo add distlock --path {root}/distlock\n"))
        .with("CARGO_NET_OFFLINE", "true")
        .with("CARGO_TARGET_DIR", &target().display().to_string())
}

/// The server that the program locks on is the one of the commands. Without it, the program prints
/// the text of its error.
#[test]
fn the_readme_can_be_typed() {
    let add = "cargo add distlock --git https://github.com/distlock/distlock\n";
    let run = "sed 's/:[0-9][0-9]*\"/:6379\"/' ../main.rs >src/main.rs; cargo run --quiet; \
        redis-cli -p 6379 exists 'distlock:fence:{stock:42}'; kill $!; wait $! || :; cargo run --quiet || :";
    let commands = with_this_library(Commands::of(README, "start"), README, "shop", add)
        .instead_of("cargo run --quiet", run);
    let output = commands.run(TOO_LONG);
    let printed: BTreeSet<_> = output.stdout.lines().collect();
    let expected = ["1", "took 1 of item 42", "took 2 of item 42"];
    assert_eq!(printed, BTreeSet::from(expected));
    let error = "\nError: the lock store is unavailable (unreachable)";
    assert!(output.stderr.contains(error));
}

#[test]
fn the_first_chapter_can_be_typed() {
    let commands = Commands::of(CHAPTER, "project")
        .then(CHAPTER, "memory")
        .then(CHAPTER, "two")
        .then(CHAPTER, "look")
        .then(CHAPTER, "kill");
    let commands = with_this_library(commands, CHAPTER, "first-lock", "cargo add distlock\n")
        .instead_of(
            "DISTLOCK_URL=memory: ",
            "cp ../main.rs src/main.rs\nDISTLOCK_URL=memory: ",
        )
        .instead_of("cargo install distlock-cli", "distlock --version")
        .instead_of("sleep 1\n", &format!("{UNTIL_WAITED_FOR}\n"))
        .instead_of(
            "time cargo run --quiet",
            "echo killed; time cargo run --quiet",
        )
        .instead_of("redis-cli ", "redis-cli -p 6379 ")
        .with_program(env!("CARGO_BIN_EXE_distlock"));
    let stdout = commands.run(TOO_LONG).stdout;

    // The calls in one process, in two, during the inspection, and before and after the kill.
    let calls = |stdout: &str| Call::all(stdout);
    let (before, after) = stdout.split_once("killed\n").expect("a kill");
    let ended: Vec<_> = calls(before);
    assert_eq!(ended.len(), 2 + 4 + 2 + 1, "{stdout}");
    assert_eq!(
        ended.iter().filter(|call| call.ended).count(),
        8,
        "{stdout}"
    );
    assert!(ended[..2].is_sorted_by_key(|call| call.token), "{stdout}");
    assert!(ended[2..].is_sorted_by_key(|call| call.token), "{stdout}");
    let after = calls(after);
    assert!(
        after.len() == 2 && after.iter().all(|call| call.ended),
        "{stdout}"
    );
    assert!(after[0].token > ended[8].token, "{stdout}");

    let listed = stdout
        .lines()
        .find(|line| line.starts_with("stock:apples "));
    let listed: Vec<_> = listed.expect("a lock").split_whitespace().collect();
    assert_eq!((listed.len(), listed[4]), (5, "1"), "{stdout}");
    for kind in ["lock", "queue", "entry", "fence"] {
        assert!(
            stdout.contains(&format!("distlock:{kind}:{{stock:apples}}\n")),
            "{kind}"
        );
    }
}

/// The output of one call of the program.
struct Call {
    token: u64,
    /// Set if the call ended before any other began.
    ended: bool,
}

impl Call {
    fn all(stdout: &str) -> Vec<Call> {
        let mut calls = Vec::new();
        let mut running: Option<String> = None;
        for line in stdout.lines() {
            if let Some((caller, token)) = line.split_once(": begins, with token ") {
                running = Some(caller.to_owned());
                let token = token.parse().expect("a token");
                calls.push(Call {
                    token,
                    ended: false,
                });
            } else if let Some(caller) = line.strip_suffix(": ends") {
                let is_alone = running.take().is_some_and(|running| running == caller);
                assert!(is_alone, "{line}, while another had begun, in\n{stdout}");
                calls.last_mut().expect("it has begun").ended = true;
            }
        }
        calls
    }
}
