//! The commands of the manual and of the package's README, run as a reader pastes them, with this
//! build and this test's server. Their output is the documented one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use distlock::LockManager;
use distlock_tests::{CommandOutput, Commands, RedisServer, eventually};
use tokio::task::JoinHandle;

use crate::support::{SOON, named, until_waiting};

const MANUAL: &str = "docs/operations/command-line.md";
const JOBS: &str = "docs/recipes/jobs.md";
const README: &str = "distlock-cli/README.md";
const FAQ: &str = "docs/faq.md";

/// The server of the readers.
const SERVER: &str = "redis://127.0.0.1:6379";

fn commands(server: &RedisServer, document: &str, name: &str) -> Commands {
    Commands::of(document, name)
        .with_program(env!("CARGO_BIN_EXE_distlock"))
        .with("DISTLOCK_URL", &server.url())
}

/// Runs the commands without blocking the holders' tasks.
async fn output_of(commands: Commands) -> CommandOutput {
    let run = tokio::task::spawn_blocking(|| commands.run(SOON));
    run.await.expect("commands that work")
}

fn program(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
}

/// Returns the output with `#` for each word that is a number or a time.
fn shape(output: &str) -> String {
    let words = output.split_whitespace().map(|word| {
        let bare = word.trim_start_matches('(');
        let is_number = bare.starts_with(|c: char| c.is_ascii_digit());
        if is_number { "#" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The shop of the manual. `web-1:4711` has `shop:1`, for which two calls wait, and releases it
/// when it is revoked; `web-2:812` has `shop:42`.
struct Shop {
    server: RedisServer,
    web_2: LockManager,
    calls: Vec<JoinHandle<()>>,
}

impl Shop {
    async fn open() -> Shop {
        let server = RedisServer::start();
        let web_1 = named(&server.url(), "web-1:4711").await;
        let web_2 = named(&server.url(), "web-2:812").await;
        let mut calls = Vec::new();
        for (locks, key) in [(&web_1, "shop:1"), (&web_2, "shop:42")] {
            let guard = locks.lock(key).acquire().await.expect("a free lock");
            calls.push(tokio::spawn(async move {
                let _lost = guard.lost().await;
                drop(guard);
            }));
        }
        for (place, locks) in [&web_2, &web_1].into_iter().enumerate() {
            let waits = locks.lock("shop:1").wait(SOON);
            calls.push(tokio::spawn(async move {
                let guard = waits.acquire().await.expect("the lock");
                guard.release().await.expect("a release");
            }));
            until_waiting(&web_2, "shop:1", place as u64 + 1).await;
        }
        Shop {
            server,
            web_2,
            calls,
        }
    }
}

#[tokio::test]
async fn held_locks_are_shown_and_revoked_as_documented() {
    let shop = Shop::open().await;
    for name in ["list", "inspect", "unlock"] {
        let commands = commands(&shop.server, MANUAL, name);
        let documented = shape(commands.output());
        let output = output_of(commands).await;
        assert_eq!(shape(&output.stdout), documented, "{name}");
    }
    drop(shop.web_2);
    shop.calls.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn the_overviews_work() {
    for document in [MANUAL, README] {
        let shop = Shop::open().await;
        let commands = commands(&shop.server, document, "overview")
            .instead_of(SERVER, &shop.server.url())
            // Runs this build, and limits a watch that would run forever.
            .instead_of_each("cargo install distlock-cli", "distlock --version")
            .instead_of(
                "distlock watch",
                "timeout 1 distlock watch || [ $? = 124 ]; :",
            );
        program(commands.dir(), "report.sh", "echo reported");
        let output = output_of(commands).await;
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout.contains("reported"), "{output:?}");
        assert!(output.stdout.contains("web-2:812"), "{output:?}");
        shop.calls.iter().for_each(JoinHandle::abort);
    }
}

mod tls {
    use super::*;

    #[tokio::test]
    async fn works_as_documented() {
        let commands = Commands::of("docs/operations/topologies.md", "tls").instead_of(
            "cargo run -p distlock-cli --",
            env!("CARGO_BIN_EXE_distlock"),
        );
        let output = output_of(commands).await;
        assert_eq!(output.stdout, "done\n", "{output:?}");
    }

    /// Without the extension of the certificate, and without trust in it, the same commands fail.
    #[tokio::test]
    async fn a_self_signed_certificate_works_as_documented() {
        let commands =
            || Commands::of(FAQ, "self-signed").with_program(env!("CARGO_BIN_EXE_distlock"));
        assert_eq!(output_of(commands()).await.stdout, "done\n");
        for (advice, error) in [
            (
                "-addext basicConstraints=critical,CA:FALSE",
                "CaUsedAsEndEntity",
            ),
            (
                "export SSL_CERT_FILE=\"$dir/redis.crt\"\n",
                "`Tls::ca_file`",
            ),
        ] {
            let commands = commands().instead_of(advice, "");
            let ended = tokio::task::spawn_blocking(|| commands.end(SOON)).await;
            let output = ended.expect("commands that end");
            assert!(
                !output.status.success() && output.stderr.contains(error),
                "{output:?}"
            );
        }
    }
}

/// Returns the ids of the connections of distlock, which use RESP3.
fn connections(server: &RedisServer) -> BTreeSet<String> {
    let reply = server.client().cmd(&["CLIENT", "LIST"]);
    let clients = reply.text().expect("a list");
    let ours = clients.lines().filter(|line| line.contains(" resp=3"));
    ours.map(|line| line.split_once(' ').expect("an id").0.to_owned())
        .collect()
}

#[tokio::test]
async fn idle_connections_stay_open_as_documented() {
    let server = RedisServer::builder().args(["--timeout", "1"]).start();
    let locks = named(&server.url(), "worker").await;
    let guard = locks.lock("job").acquire().await.expect("a free lock");
    let before = connections(&server);
    assert!(before.len() > 1, "{before:?}");
    eventually(SOON, || !before.is_subset(&connections(&server)));
    let redis_cli = format!("redis-cli -p {}", server.port());
    output_of(Commands::of(FAQ, "idle").instead_of("redis-cli", &redis_cli)).await;
    // One that was closed just before is opened again.
    eventually(SOON, || connections(&server).len() == before.len());
    let after = connections(&server);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(connections(&server), after);
    guard.check().expect("a lock that was held all along");
}

/// The local dates of these time zones always differ. A run at midnight UTC is repeated.
#[tokio::test]
async fn the_job_of_a_date_runs_once_in_all_time_zones() {
    let today = || SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_secs() / 86_400;
    let mut runs = Vec::new();
    for _ in 0..2 {
        let (day, server) = (today(), RedisServer::start());
        runs.clear();
        for zone in ["EAST-14", "WEST+11"] {
            let commands = commands(&server, JOBS, "dated").with("TZ", zone);
            program(commands.dir(), "report.sh", "echo reported");
            runs.push(output_of(commands).await.stdout);
        }
        if day == today() {
            break;
        }
    }
    assert_eq!(runs, ["reported\n", ""]);
}

#[tokio::test]
async fn a_command_finds_its_token() {
    let server = RedisServer::start();
    let commands = commands(&server, MANUAL, "fenced");
    // The program under the lock is the reader's own.
    program(commands.dir(), "psql", r#"echo "$*""#);
    let psql = commands.dir().join("psql");
    let output = output_of(commands.with_program(psql.to_str().expect("a path"))).await;
    let token = output.stdout.strip_prefix("-v token=").expect("a token");
    let token = token.strip_suffix(" -f report.sql\n").expect("a token");
    assert!(token.parse::<u64>().is_ok_and(|token| token > 0), "{token}");
}

#[tokio::test]
async fn jobs_run_as_documented() {
    for (document, name) in [(MANUAL, "once"), (JOBS, "operating")] {
        let server = RedisServer::start();
        let locks = named(&server.url(), "worker").await;
        let done = locks.lock("webhooks:account:7").once_for("evt_1");
        let done = done.run(async |_| Ok::<_, distlock::Error>(()));
        done.await.expect("the first run");
        let commands = commands(&server, document, name);
        program(commands.dir(), "report.sh", "echo reported");
        let output = output_of(commands).await;
        assert!(output.stdout.contains("reported"), "{output:?}");
    }
}

#[tokio::test]
async fn completions_are_written() {
    let server = RedisServer::start();
    let commands = commands(&server, MANUAL, "completions")
        .instead_of("/etc/bash_completion.d/distlock", "bash")
        .instead_of("${fpath[1]}/_distlock", "zsh")
        .instead_of("~/.config/fish/completions/distlock.fish", "fish");
    let output = output_of(commands).await;
    for (shell, part) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef distlock"),
        ("fish", "complete -c distlock"),
    ] {
        let script = fs::read_to_string(output.dir().join(shell)).expect("a script");
        for part in [part, "inspect", "assume-holder-dead", "on-lost"] {
            assert!(script.contains(part), "{part} is not in that of {shell}");
        }
    }
}
