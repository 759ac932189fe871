//! `distlock run`: runs a command while a lock is held, and not a moment longer.
//!
//! `supervisor` has the lock and follows the command, which is a `group` of processes that
//! `program` starts. `keeper` is a second process for the case that this one cannot act. `signals`
//! receives this process's signals, and `terminal` controls which group may read.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use distlock::{__doctor, Error, FencingToken};
use serde_json::{Value, json};

use crate::cli::{Global, OnLost, Run};
use crate::connect;
use crate::exit::{CommandResult, Failure, USAGE};
use crate::output::table::printable;
use crate::output::time::rfc3339;
use crate::run::guard::Guard;
use crate::run::record::RecordWatcher;
use crate::run::signals::Signals;
use crate::run::supervisor::Supervisor;

mod group;
mod guard;
pub(crate) mod keeper;
pub(crate) mod program;
mod record;
mod signals;
mod supervisor;
mod terminal;

/// The defaults of `--lease` and `--wait`, without a variable.
const DEFAULT_LEASE: Duration = Duration::from_secs(15);
const DEFAULT_WAIT: Duration = Duration::from_secs(10);

pub(crate) async fn main(global: Global, options: Run) -> CommandResult {
    let (builder, url) = connect::builder(&global)?;
    let (lease, wait) = __doctor::default_times(&builder);
    let lease = options.lease.or(lease).unwrap_or(DEFAULT_LEASE);
    let wait = options.wait.or(wait).unwrap_or(DEFAULT_WAIT);
    let grace = grace(&options, lease)?;
    // From now on, a signal is an event, and never ends this process by itself.
    let mut signals = Signals::listen()?;
    let started = Instant::now();
    let records = RecordWatcher::default();
    let manager = tokio::select! {
        manager = builder.add_observer(records.clone()).connect(&url) => manager?,
        exit = signals.ending() => return Ok(ExitCode::from(exit.code())),
    };
    let acquire = async {
        let guard = match Guard::acquire(&manager, &options, (lease, wait)).await {
            Ok(guard) => guard,
            Err(error @ Error::AlreadyRan { .. }) => return Ok(Err(error)),
            Err(error) => return Err(error.into()),
        };
        // A lock that was handed over is granted for at most a second, which may be less than the
        // grace.
        match guard.confirmed().await {
            Ok(()) => Ok(Ok(guard)),
            Err(error) => Err(supervisor::not_started(&options.key, &error)),
        }
    };
    let acquired = tokio::select! {
        acquired = acquire => acquired,
        exit = signals.ending() => {
            // The call was dropped, so the shutdown releases its place in the queue, or its lock.
            manager.shutdown().await;
            return Ok(ExitCode::from(exit.code()));
        }
    };
    let waited = started.elapsed();
    let guard = match acquired {
        Ok(Ok(guard)) => guard,
        Ok(Err(already_ran)) => {
            manager.shutdown().await;
            report_skip(&global, &options.key, waited, &already_ran);
            return Ok(ExitCode::SUCCESS);
        }
        Err(failure) => {
            manager.shutdown().await;
            return Err(failure);
        }
    };
    let token = guard.fencing_token();
    let supervisor = Supervisor {
        guard,
        on_lost: options.on_lost,
        grace,
        signals,
    };
    let started = Instant::now();
    let finished = supervisor.run(&options.command).await;
    // Afterwards, all events have been delivered.
    manager.shutdown().await;
    if let Some(warning) = records.warning(&options.key) {
        eprintln!("distlock: {warning}");
    }
    if global.json {
        let (code, lost) = match &finished {
            Ok(exit) => (exit.code(), None),
            Err(failure) => (failure.code, Some(failure.kind())),
        };
        report(json!({
            "key": options.key,
            "fencing_token": token.map(FencingToken::get),
            "waited_ms": millis(waited),
            "held_ms": millis(started.elapsed()),
            "error": lost,
            "code": code,
            "skipped": null,
        }));
    }
    Ok(ExitCode::from(finished?.code()))
}

/// Writes the end of the run as JSON.
fn report(run: Value) {
    eprintln!("{}", json!({ "run": run }));
}

/// Reports that the command did not run, because it has already succeeded.
fn report_skip(global: &Global, key: &str, waited: Duration, error: &Error) {
    let Error::AlreadyRan {
        last_success, next, ..
    } = error
    else {
        return;
    };
    let (last_success, next) = (rfc3339(*last_success), rfc3339(*next));
    if global.json {
        report(json!({
            "key": key,
            "fencing_token": null,
            "waited_ms": millis(waited),
            "held_ms": 0,
            "error": null,
            "code": 0,
            "skipped": { "reason": "already_ran", "last_success": last_success, "next": next },
        }));
    } else {
        let text = format!(
            "skipped: the command of lock `{key}` has already succeeded; last success {last_success}, next run from {next} on; \
             to run it before, use `distlock forget`"
        );
        eprintln!("distlock: {}", printable(&text));
    }
}

/// Returns how long before the loss the command gets SIGTERM.
fn grace(options: &Run, lease: Duration) -> Result<Duration, Failure> {
    let grace = options.kill_after.unwrap_or(lease / 3);
    if options.on_lost == OnLost::Term && grace > lease / 2 {
        return Err(Failure::new(
            USAGE,
            format!(
                "--kill-after {} is more than half of --lease {}: a single late renewal would end the command; shorten it",
                humantime::format_duration(grace),
                humantime::format_duration(lease),
            ),
        )
        .with_key(&options.key));
    }
    Ok(grace)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
