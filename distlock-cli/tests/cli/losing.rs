//! `distlock run` when the lock or `distlock` itself is lost: the command is stopped before another
//! client can have the lock.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use distlock_tests::{Directions, RedisServer, Worker, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::support::{
    SOON, beats, distlock, heartbeat, manager, shell, text, until_waiting, wall_nanos,
};

/// The server keeps the lock for another three seconds.
const LEASE: &str = "30s";

/// A command under the lock `k` that records when it lives.
struct Scene {
    server: RedisServer,
    dir: TempDir,
}

impl Scene {
    fn new() -> Self {
        Scene {
            server: RedisServer::start(),
            dir: tempfile::tempdir().expect("a directory"),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts the command, and waits until it lives.
    fn start(&self, url: &str, how: &str, script: &str) -> Worker {
        let line = format!("run --lease {LEASE} --on-lost {how} k");
        let worker = Worker::spawn(&mut shell(url, &line, script));
        eventually(SOON, || !beats(&self.file("beats")).is_empty());
        worker
    }

    /// Acquires the lock when it is free, and checks that no beat of the command is later.
    async fn no_process_lives_when_another_client_has_the_lock(&self) {
        let locks = manager(&self.server.url()).await;
        let lock = locks.lock("k").wait(SOON * 3);
        let guard = lock
            .acquire()
            .await
            .expect("the lock, when its lease has ended");
        let acquired = wall_nanos();
        // A process that lives on keeps writing.
        std::thread::sleep(Duration::from_millis(300));
        let beats = beats(&self.file("beats"));
        let last = *beats.last().expect("a beat");
        assert!(
            last < acquired,
            "the command lived {} ms longer than its lock",
            (last - acquired) / 1_000_000
        );
        guard.release().await.expect("a release");
        locks.shutdown().await;
    }
}

/// Returns a script that beats until SIGTERM, and records the signal.
fn script_that_handles_sigterm(beats: &Path, signalled: &Path) -> String {
    format!(
        "trap 'echo > \"{}\"; exit 0' TERM; {}",
        signalled.display(),
        heartbeat(beats)
    )
}

/// Returns a script that beats and ignores SIGTERM. It leaves our pipes, because a test that waits
/// for their end would wait for a surviving process.
fn script_that_ignores_sigterm(beats: &Path) -> String {
    format!("exec > /dev/null 2>&1; trap '' TERM; {}", heartbeat(beats))
}

/// A command gets SIGTERM unless `--on-lost kill` forbids it, and is gone in time in any case.
#[tokio::test]
async fn a_command_is_signalled_or_killed_in_time() {
    for (how, handles, expected) in [
        ("term", true, true),
        ("term", false, false),
        ("kill", true, false),
    ] {
        let scene = Scene::new();
        let proxy = scene.server.proxy();
        let (beats, signalled) = (scene.file("beats"), scene.file("signalled"));
        let script = if handles {
            script_that_handles_sigterm(&beats, &signalled)
        } else {
            script_that_ignores_sigterm(&beats)
        };
        let mut worker = scene.start(&proxy.url(), how, &script);
        proxy.black_hole(true);
        scene
            .no_process_lives_when_another_client_has_the_lock()
            .await;
        assert_eq!(worker.wait(SOON).code(), Some(118));
        assert_eq!(signalled.exists(), expected, "{how} {handles}");
    }
}

#[tokio::test]
async fn a_lock_that_was_deleted_ends_the_command_at_the_next_renewal() {
    let scene = Scene::new();
    let script = script_that_ignores_sigterm(&scene.file("beats"));
    let mut worker = scene.start(&scene.server.url(), "term", &script);
    scene.server.client().cmd(&["DEL", "distlock:lock:{k}"]);
    assert_eq!(worker.wait(SOON).code(), Some(118));
}

/// After SIGSTOP, `distlock` renews nothing and kills nothing. Its keeper kills the command. The
/// keeper itself may be killed, because another one is started.
#[tokio::test]
async fn the_command_does_not_outlive_the_lock_when_distlock_is_suspended() {
    for is_replaced in [false, true] {
        let scene = Scene::new();
        let script = script_that_ignores_sigterm(&scene.file("beats"));
        let mut worker = scene.start(&scene.server.url(), "term", &script);
        if is_replaced {
            let keeper = || keeper_of(worker.pid());
            let first = keeper().expect("a keeper");
            signal(first, Signal::SIGKILL);
            eventually(SOON, || keeper().is_some_and(|other| other != first));
        }
        worker.stop_process();
        scene
            .no_process_lives_when_another_client_has_the_lock()
            .await;
        worker.cont_process();
        assert_eq!(worker.wait(SOON).code(), Some(118));
    }
}

/// The command continues after its SIGTERM, and overlaps with another holder while distlock and its
/// keeper are stopped.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_loss_that_is_noticed_late_is_reported_as_a_loss() {
    let scene = Scene::new();
    let proxy = scene.server.proxy();
    let (beats_file, signalled) = (scene.file("beats"), scene.file("signalled"));
    let script = format!(
        "trap 'echo > \"{}\"' TERM; {}",
        signalled.display(),
        heartbeat(&beats_file)
    );
    let stderr = scene.file("stderr");
    let mut command = shell(&proxy.url(), "run --lease 6s --kill-after 3s k", &script);
    command.stderr(File::create(&stderr).expect("a file"));
    let mut worker = Worker::spawn(&mut command);
    eventually(SOON, || !beats(&beats_file).is_empty());
    proxy.black_hole(true);
    eventually(SOON, || signalled.exists());
    worker.stop_process();
    let keeper = keeper_of(worker.pid()).expect("a keeper");
    signal(keeper, Signal::SIGSTOP);
    let locks = manager(&scene.server.url()).await;
    let guard = locks.lock("k").wait(SOON).acquire().await;
    let guard = guard.expect("the lock, when its lease has ended");
    let acquired = wall_nanos();
    eventually(SOON, || beats(&beats_file).last() > Some(&acquired));
    signal(keeper, Signal::SIGCONT);
    // The keeper kills the command, and its parent learns of that when it continues.
    eventually(SOON, || keeper_of(worker.pid()).is_none());
    worker.cont_process();
    assert_eq!(worker.wait(SOON).code(), Some(118));
    let stderr = std::fs::read_to_string(stderr).expect("a file");
    let last = stderr.lines().last().expect("a line");
    assert!(last.contains("lock `k` was lost: "), "{stderr}");
    assert!(last.contains("another holder may have run"), "{stderr}");
    guard.release().await.expect("a release");
}

/// The grant arrives, and no command reaches the server: the lock is lost before it is confirmed.
#[tokio::test]
async fn a_lock_that_is_not_confirmed_runs_no_command() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    let locks = manager(&server.url()).await;
    let guard = locks.lock("k").acquire().await.expect("a free lock");
    let mut command = distlock(&proxy.url(), "run --wait 1m k -- echo ran");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = command.spawn().expect("a process");
    until_waiting(&locks, "k", 1).await;
    proxy.stop_reading(Directions::ToServer, true);
    guard.release().await.expect("a release");
    let ended = run.wait_with_output().expect("an end");
    assert_eq!(ended.status.code(), Some(118), "{ended:?}");
    assert_eq!(text(&ended.stdout), "");
    let stderr = text(&ended.stderr);
    assert!(stderr.contains("the command did not run"), "{stderr}");
}

/// After SIGKILL no client releases the lock, which is free when its lease and grace period have
/// ended. The whole process group is gone by then, including the processes that the kernel does not
/// kill by itself.
#[tokio::test]
async fn the_command_does_not_outlive_the_lock_when_distlock_is_killed() {
    let scene = Scene::new();
    // The shell waits for another one, which beats.
    let script = format!(
        "sh -c '{}'; true",
        script_that_ignores_sigterm(&scene.file("beats")).replace('\'', "'\\''")
    );
    let worker = scene.start(&scene.server.url(), "term", &script);
    worker.kill();
    scene
        .no_process_lives_when_another_client_has_the_lock()
        .await;
}

/// If both are killed at once, the kernel kills the command.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_command_does_not_outlive_distlock_and_its_supervisor() {
    let scene = Scene::new();
    let script = script_that_ignores_sigterm(&scene.file("beats"));
    let mut worker = scene.start(&scene.server.url(), "term", &script);
    let keeper = keeper_of(worker.pid()).expect("a keeper");
    // A stopped `distlock` starts no other keeper.
    worker.stop_process();
    signal(keeper, Signal::SIGKILL);
    worker.kill();
    scene
        .no_process_lives_when_another_client_has_the_lock()
        .await;
}

fn signal(process: u32, signal: Signal) {
    kill(Pid::from_raw(process as i32), signal).expect("a signal");
}

/// The command ends and leaves a process that ignores SIGTERM. The lock is free only after that
/// process has ended.
#[tokio::test]
async fn background_processes_of_a_command_do_not_outlive_the_lock() {
    let scene = Scene::new();
    let file = scene.file("beats");
    let left = format!("(trap '' TERM; {})", heartbeat(&file));
    let begun = format!("while [ ! -s '{}' ]; do sleep 0.02; done", file.display());
    let script = format!("{left} & {begun}; exit 3");
    let mut worker = scene.start(&scene.server.url(), "term", &script);
    scene
        .no_process_lives_when_another_client_has_the_lock()
        .await;
    assert_eq!(worker.wait(SOON).code(), Some(3));
}

/// Returns the process `distlock keeper` of a parent.
fn keeper_of(parent: u32) -> Option<u32> {
    let children = format!("/proc/{parent}/task/{parent}/children");
    let children = std::fs::read_to_string(children).expect("a process with children");
    let mut pids = children
        .split_whitespace()
        .filter_map(|pid| pid.parse::<u32>().ok());
    pids.find(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"keeper")
    })
}
