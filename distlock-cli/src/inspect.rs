//! `distlock inspect`: shows one lock, its holder and its waiters.

use std::fmt::Write as _;
use std::process::ExitCode;

use distlock::{Holder, LockState, ServerState, Waiter};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::connect::connect;
use crate::exit::Ended;
use crate::output::table::{Column, table, wrap};
use crate::output::time::{ago, kept, millis, moment, short};
use crate::output::{self, lock};

/// The column at which the values begin.
const INDENT: usize = 10;

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
    Column::Number("WAITING"),
];

pub(crate) async fn main(global: Global, key: String) -> Ended {
    let manager = connect(&global).await?;
    let seen = manager.inspect(&key).await;
    manager.shutdown().await;
    let seen = seen?;
    output::show(&global, || as_json(&seen), || as_text(&seen))?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(seen: &LockState) -> Value {
    let waiters = seen.waiters.iter().map(|waiter| {
        json!({
            "client": waiter.client,
            "waiting_since": moment(waiter.waiting_since),
            "waited_ms": millis(Some(ago(waiter.waiting_since))),
        })
    });
    let servers = seen.servers.iter().map(|server| {
        json!({
            "address": server.address,
            "holder": server.holder.as_ref().map(lock::holder),
            "last_fencing_token": server.last_fencing_token.map(|token| token.get()),
            "queue_length": server.queue_length,
            "error": server.error,
        })
    });
    let mut object = lock::as_json(seen);
    object["waiters"] = waiters.collect();
    object["servers"] = servers.collect();
    object
}

fn as_text(seen: &LockState) -> String {
    let mut text = String::new();
    let mut say = |name: &str, what: &str| {
        let what = wrap(what, INDENT);
        let _ = writeln!(text, "{name:<INDENT$}{what}");
    };
    say("key", &seen.key);
    if seen.holders.is_empty() {
        say("state", "free");
    }
    for holder in &seen.holders {
        match holder.kept_until {
            Some(until) => {
                say("state", &kept(until));
                say("last held", &held_by(holder));
            }
            None => say("held by", &held_by(holder)),
        }
    }
    let held = seen.holders.first().and_then(|holder| holder.fencing_token);
    if let Some(token) = held {
        say("token", &token.to_string());
    }
    if let Some(left) = seen.expires_in {
        let is_kept = |holder: &Holder| holder.kept_until.is_some();
        let unless = if seen.holders.iter().any(is_kept) {
            ""
        } else {
            ", unless it is renewed or released"
        };
        say("free in", &format!("{}{unless}", short(left)));
    }
    say("waiting", &seen.queue_length.to_string());
    let waiting = seen.waiters.iter().enumerate();
    let waiting: Vec<_> = waiting.map(|(place, waiter)| row(place, waiter)).collect();
    if !waiting.is_empty() {
        text.push('\n');
        text.push_str(&table(WAITING, &waiting));
    }
    let servers: Vec<_> = seen.servers.iter().map(server).collect();
    if !servers.is_empty() {
        text.push('\n');
        text.push_str(&table(SERVERS, &servers));
    }
    text
}

fn held_by(holder: &Holder) -> String {
    let (since, held) = (moment(holder.held_since), short(ago(holder.held_since)));
    format!("{} since {since} ({held})", holder.client)
}

fn row(place: usize, waiter: &Waiter) -> Vec<String> {
    vec![
        (place + 1).to_string(),
        waiter.client.clone(),
        moment(waiter.waiting_since),
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
        server.queue_length.to_string(),
    ]
}
