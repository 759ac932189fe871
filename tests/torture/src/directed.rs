//! Checks of single rules on real servers, for saboteurs whose effect random faults rarely show.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use distlock::LockManager;
use distlock_tests::{PgBouncer, PostgresServer};

use crate::saboteurs::VARIABLE;

/// The exit code of a process that found the rule broken.
const BROKEN: u8 = 3;

/// A check of a rule, which returns true if the rule is kept.
type Check = fn(&PostgresServer) -> anyhow::Result<bool>;

const CHECKS: &[(&str, Check)] = &[
    ("probe-skipped", a_pooled_client_takes_no_liveness_lock),
    ("warning-believed", a_cancelled_wait_proves_nothing),
];

/// The check that a process makes
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    name: String,
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().map(|(name, _)| *name)
}

/// Makes one check with the rules of this process.
pub(crate) fn run(args: &Args) -> anyhow::Result<std::process::ExitCode> {
    let found = CHECKS.iter().find(|(name, _)| *name == args.name);
    let (_, check) = found.context("there is no such check")?;
    let server = PostgresServer::start();
    block_on(LockManager::install_schema(&server.url()))??;
    Ok(if check(&server)? {
        std::process::ExitCode::SUCCESS
    } else {
        BROKEN.into()
    })
}

/// Returns true if the check fails with the saboteur, and only with it.
pub(crate) fn catches(name: &str) -> anyhow::Result<bool> {
    let mut broken = Vec::new();
    for sabotage in [name, ""] {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["directed", name]).env(VARIABLE, sabotage);
        let output = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()?;
        broken.push(match output.status.code() {
            Some(0) => false,
            Some(code) if code == i32::from(BROKEN) => true,
            _ => bail!(
                "the check of {name} has no result: {}",
                String::from_utf8_lossy(&output.stderr)
            ),
        });
    }
    Ok(broken == [true, false])
}

fn block_on<F: Future>(work: F) -> anyhow::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(work))
}

/// A pooler keeps the session of a client that has gone, with its liveness lock: others would take the
/// client for alive.
fn a_pooled_client_takes_no_liveness_lock(server: &PostgresServer) -> anyhow::Result<bool> {
    let pooler = PgBouncer::start(server, "transaction");
    block_on(async {
        // Without the rule, a session that is none may fail at once.
        if let Ok(manager) = LockManager::connect(&pooler.url()).await {
            let guard = manager.lock("k").acquire().await;
            let waiting = manager.lock("k").wait(Duration::from_millis(700));
            drop((waiting.acquire().await, guard));
            manager.shutdown().await;
        }
    })?;
    // The server notices the end of a connection a moment later.
    std::thread::sleep(Duration::from_millis(500));
    let liveness_locks = server.sql("select count(*) from pg_locks where locktype = 'advisory'");
    Ok(liveness_locks == "0")
}

/// A commit whose wait for the standby is cancelled succeeds with a warning, and is not replicated.
fn a_cancelled_wait_proves_nothing(server: &PostgresServer) -> anyhow::Result<bool> {
    server.sql("alter system set synchronous_standby_names = 'absent';\nselect pg_reload_conf()");
    let is_done = AtomicBool::new(false);
    let acquired = std::thread::scope(|scope| {
        let acquiring = block_on(async {
            // Connecting waits for no standby.
            let manager = LockManager::connect(&server.url()).await?;
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    server.sql(
                        "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'",
                    );
                }
            });
            let lock = manager.lock("k").lease(Duration::from_secs(30));
            let acquired = lock.try_acquire().await;
            Ok::<_, distlock::Error>(matches!(acquired, Ok(Some(_))))
        });
        is_done.store(true, Ordering::Relaxed);
        acquiring
    })??;
    let tried = server.log();
    ensure!(
        tried.contains("canceling wait for synchronous replication"),
        "no wait was cancelled:\n{tried}"
    );
    Ok(!acquired)
}
