//! `distlock list`: the locks that are held.

use std::process::ExitCode;

use distlock::KeyState;
use serde_json::json;

use crate::cli::{Global, Select};
use crate::connect::connect;
use crate::exit::Ended;
use crate::output::table::{Column, table};
use crate::output::time::{ago, kept, short};
use crate::output::{self, lock};

const COLUMNS: &[Column] = &[
    Column::Text("KEY"),
    Column::Text("HOLDER"),
    Column::Number("HELD"),
    Column::Number("LEFT"),
    Column::Number("WAITING"),
];

pub(crate) async fn main(global: Global, options: Select) -> Ended {
    let manager = connect(&global).await?;
    let locks = manager.list(options.prefix).await;
    manager.shutdown().await;
    let locks = locks?;
    if global.json {
        let locks: Vec<_> = locks.iter().map(lock::as_json).collect();
        output::json(&json!({ "locks": locks }))?;
    } else {
        let rows: Vec<_> = locks.iter().map(row).collect();
        output::write(table(COLUMNS, &rows).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(lock: &KeyState) -> Vec<String> {
    let (holder, held) = match lock.holders().first() {
        None => ("-".into(), "-".into()),
        Some(holder) => match holder.kept_until {
            Some(until) => (kept(until), "-".into()),
            None => (holder.client.clone(), short(ago(holder.held_since))),
        },
    };
    vec![
        lock.key.clone(),
        holder,
        held,
        lock.remaining.map_or("-".into(), short),
        lock.waiters.to_string(),
    ]
}
