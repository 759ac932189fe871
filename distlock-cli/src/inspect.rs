//! `distlock inspect`: shows one lock, its holders and its waiters.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use distlock::{Holder, LockState, ServerState, SuccessRecord, Waiter};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::connect::connect;
use crate::exit::CommandResult;
use crate::output::table::{Column, table, wrap};
use crate::output::time::{ago, kept, millis, rfc3339, short};
use crate::output::{self, lock};

/// The column at which the values begin.
const INDENT: usize = 14;

const WAITING: &[Column] = &[
    Column::Number("#"),
    Column::Text("WAITING"),
    Column::Text("SINCE"),
    Column::Number("FOR"),
];

const SERVERS: &[Column] = &[
    Column::Text("SERVER"),
    Column::Text("HOLDER"),
    Column::Number("TOKEN"),
];

pub(crate) async fn main(global: Global, key: String) -> CommandResult {
    let manager = connect(&global).await?;
    let state = manager.inspect(&key).await;
    manager.shutdown().await;
    let state = state?;
    output::show(&global, || as_json(&state), || as_text(&state))?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(state: &LockState) -> Value {
    let waiters = state.waiters.iter().map(|waiter| {
        json!({
            "client": waiter.client,
            "waiting_since": rfc3339(waiter.waiting_since),
            "waited_ms": millis(Some(ago(waiter.waiting_since))),
        })
    });
    let servers = state.servers.iter().map(|server| {
        json!({
            "address": server.address,
            "holder": server.holder.as_ref().map(lock::holder),
            "last_fencing_token": server.last_fencing_token.map(|token| token.get()),
            "error": server.error,
        })
    });
    let mut object = lock::as_json(state);
    object["waiters"] = waiters.collect();
    object["servers"] = servers.collect();
    object["last_success"] = state.last_success.as_ref().map(success).into();
    object["record_conflict"] = state.record_conflict.as_deref().into();
    object
}

fn success(success: &SuccessRecord) -> Value {
    json!({
        "client": success.client,
        "metadata": success.metadata,
        "fencing_token": success.fencing_token.get(),
        "started": rfc3339(success.started),
        "finished": rfc3339(success.finished),
        "next": rfc3339(success.next),
    })
}

/// Returns the consequence of a value that distlock did not write, and the remedy.
fn foreign(conflict: &str) -> String {
    format!("{conflict}: runs with --once-per fail; delete that key if nothing else needs it")
}

/// Returns how long a run took. The server's clock may have stepped back meanwhile.
fn took(success: &SuccessRecord) -> Duration {
    let took = success.finished.duration_since(success.started);
    took.unwrap_or_default()
}

fn as_text(state: &LockState) -> String {
    let mut text = String::new();
    let mut add_line = |name: &str, what: &str| {
        let what = wrap(what, INDENT);
        let _ = writeln!(text, "{name:<INDENT$}{what}");
    };
    add_line("key", &state.key);
    if let Some(kind) = state.kind {
        add_line("kind", &kind.to_string());
    }
    if state.holders.is_empty() {
        add_line("state", "free");
    }
    for holder in &state.holders {
        match holder.kept_until {
            Some(until) => {
                add_line("state", &kept(until));
                add_line("last held", &held_by(state, holder));
            }
            None => add_line("held by", &held_by(state, holder)),
        }
    }
    let held = state
        .holders
        .first()
        .and_then(|holder| holder.fencing_token);
    if let Some(token) = held {
        add_line("token", &token.to_string());
    }
    if let Some(remaining) = state.expires_in {
        let is_kept = |holder: &Holder| holder.kept_until.is_some();
        let unless = if state.holders.iter().any(is_kept) {
            ""
        } else {
            ", unless it is renewed or released"
        };
        add_line("free in", &format!("{}{unless}", short(remaining)));
    }
    if let Some(success) = &state.last_success {
        let (started, took) = (rfc3339(success.started), short(took(success)));
        let client = lock::with_metadata(&success.client, success.metadata.as_deref());
        add_line(
            "last success",
            &format!("{started} (took {took}) by {client}"),
        );
        add_line("next run", &format!("from {} on", rfc3339(success.next)));
    }
    if let Some(conflict) = &state.record_conflict {
        add_line("record", &foreign(conflict));
    }
    add_line("waiting", &state.queue_length.to_string());
    let waiting = state.waiters.iter().enumerate();
    let waiting: Vec<_> = waiting.map(|(place, waiter)| row(place, waiter)).collect();
    if !waiting.is_empty() {
        text.push('\n');
        text.push_str(&table(WAITING, &waiting));
    }
    let servers: Vec<_> = state.servers.iter().map(server).collect();
    if !servers.is_empty() {
        text.push('\n');
        text.push_str(&table(SERVERS, &servers));
    }
    text
}

fn held_by(state: &LockState, holder: &Holder) -> String {
    let (since, held) = (rfc3339(holder.held_since), short(ago(holder.held_since)));
    format!("{} since {since} ({held})", lock::client(state, holder))
}

fn row(place: usize, waiter: &Waiter) -> Vec<String> {
    vec![
        (place + 1).to_string(),
        waiter.client.clone(),
        rfc3339(waiter.waiting_since),
        short(ago(waiter.waiting_since)),
    ]
}

fn server(server: &ServerState) -> Vec<String> {
    let holder = match (&server.error, &server.holder) {
        (Some(error), _) => format!("? {error}"),
        (None, Some(holder)) => holder.client.clone(),
        (None, None) => "-".into(),
    };
    vec![
        server.address.clone(),
        holder,
        server
            .last_fencing_token
            .map_or("-".into(), |token| token.to_string()),
    ]
}
