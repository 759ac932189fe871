//! `distlock run`: runs a command while a lock is held, and not a moment longer.
//!
//! `supervisor` has the lock and follows the command, which is a `group` of processes that
//! `program` starts. `keeper` is a second process for the case that this one cannot act. `signals`
//! receives this process's signals, and `terminal` controls which group may read.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use distlock::FencingToken;
use serde_json::json;

use crate::cli::{Global, OnLost, Run};
use crate::connect::connect;
use crate::exit::{CommandResult, Failure, USAGE};
use crate::run::guard::Guard;
use crate::run::signals::Signals;
use crate::run::supervisor::Supervisor;

mod group;
mod guard;
pub(crate) mod keeper;
pub(crate) mod program;
mod signals;
mod supervisor;
mod terminal;

pub(crate) async fn main(global: Global, options: Run) -> CommandResult {
    let grace = grace(&options)?;
    // From now on, a signal is an event, and never ends this process by itself.
    let mut signals = Signals::listen()?;
    let started = Instant::now();
    let manager = tokio::select! {
        manager = connect(&global) => manager?,
        exit = signals.ending() => return Ok(ExitCode::from(exit.code())),
    };
    let acquire = async {
        let guard = Guard::acquire(&manager, &options).await?;
        // A lock that was handed over is granted for at most a second, which may be less than the
        // grace.
        match guard.confirmed().await {
            Ok(()) => Ok(guard),
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
    let guard = match acquired {
        Ok(guard) => guard,
        Err(failure) => {
            manager.shutdown().await;
            return Err(failure);
        }
    };
    let waited = started.elapsed();
    let token = guard.fencing_token();
    let supervisor = Supervisor {
        guard,
        on_lost: options.on_lost,
        grace,
        signals,
    };
    let started = Instant::now();
    let finished = supervisor.run(&options.command).await;
    manager.shutdown().await;
    if global.json {
        let (code, lost) = match &finished {
            Ok(exit) => (exit.code(), None),
            Err(failure) => (failure.code, Some(failure.kind())),
        };
        eprintln!(
            "{}",
            json!({
                "run": {
                    "key": options.key,
                    "fencing_token": token.map(FencingToken::get),
                    "waited_ms": millis(waited),
                    "held_ms": millis(started.elapsed()),
                    "error": lost,
                    "code": code,
                }
            })
        );
    }
    Ok(ExitCode::from(finished?.code()))
}

/// Returns how long before the loss the command gets SIGTERM.
fn grace(options: &Run) -> Result<Duration, Failure> {
    let grace = options.kill_after.unwrap_or(options.lease / 3);
    if options.on_lost == OnLost::Term && grace > options.lease / 2 {
        return Err(Failure::new(
            USAGE,
            format!(
                "--kill-after {} is more than half of --lease {}: a single late renewal would end the command; shorten it",
                humantime::format_duration(grace),
                humantime::format_duration(options.lease),
            ),
        )
        .with_key(&options.key));
    }
    Ok(grace)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
