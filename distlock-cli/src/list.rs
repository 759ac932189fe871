//! `distlock list`: lists the locks that are held.

use std::process::ExitCode;

use distlock::LockState;
use serde_json::json;

use crate::cli::Global;
use crate::connect::connect;
use crate::exit::CommandResult;
use crate::output::table::{Column, table};
use crate::output::time::{ago, kept, short};
use crate::output::{self, lock};

const COLUMNS: &[Column] = &[
    Column::Text("KEY"),
    Column::Text("HOLDER"),
    Column::Number("HELD"),
    Column::Number("EXPIRES IN"),
    Column::Number("WAITING"),
];

pub(crate) async fn main(global: Global, prefix: String) -> CommandResult {
    let manager = connect(&global).await?;
    let locks = manager.list(&prefix).await;
    manager.shutdown().await;
    let locks = locks?;
    let as_json = || json!({ "locks": locks.iter().map(lock::as_json).collect::<Vec<_>>() });
    let as_text = || table(COLUMNS, &locks.iter().map(row).collect::<Vec<_>>());
    output::show(&global, as_json, as_text)?;
    Ok(ExitCode::SUCCESS)
}

fn row(lock: &LockState) -> Vec<String> {
    let (holder, held) = match lock.holders.first() {
        None => ("-".into(), "-".into()),
        Some(holder) => match holder.kept_until {
            Some(until) => (kept(until), "-".into()),
            None => (lock::client(lock, holder), short(ago(holder.held_since))),
        },
    };
    let holder = match lock.holders.len() {
        0 | 1 => holder,
        count => format!("{holder}, {} more", count - 1),
    };
    vec![
        lock.key.clone(),
        holder,
        held,
        lock.expires_in.map_or("-".into(), short),
        lock.queue_length.to_string(),
    ]
}
