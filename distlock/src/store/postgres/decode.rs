//! Reads the rows of replies. What is malformed becomes an error, and never a hold.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use crate::error::LockKind;
use crate::fencing::FencingToken;
use crate::protocol::messages::{HolderView, OwnerId, QueuedWaiter};
use crate::protocol::once::Record;
use crate::store::StoreResult;
use crate::store::client_id::{self, ClientId, parse_number};
use crate::store::postgres::errors::malformed;
use crate::util::clock::ServerTime;

/// Returns a column.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> StoreResult<T> {
    row.try_get(name)
        .map_err(|_| malformed(&format!("no `{name}` that is readable")))
}

/// Returns the only row of a reply.
pub(super) fn one(rows: &[Row]) -> StoreResult<&Row> {
    rows.first().ok_or_else(|| malformed("no row"))
}

pub(super) fn held_token(row: &Row) -> StoreResult<FencingToken> {
    token(row)?.ok_or_else(|| malformed("no token"))
}

pub(super) fn token(row: &Row) -> StoreResult<Option<FencingToken>> {
    let token: Option<i64> = column(row, "token")?;
    Ok(token.and_then(positive).map(FencingToken::new))
}

pub(super) fn server_time(row: &Row) -> StoreResult<Option<ServerTime>> {
    let micros: Option<i64> = column(row, "server_us")?;
    Ok(micros.and_then(positive).map(ServerTime))
}

fn positive(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| *number > 0)
}

/// Returns a kind in two columns; `None` for null, when nothing is held.
pub(super) fn kind(row: &Row, name: &str, capacity: &str) -> StoreResult<Option<LockKind>> {
    let (kind, capacity): (Option<i8>, Option<i32>) = (column(row, name)?, column(row, capacity)?);
    let Some((kind, capacity)) = kind.zip(capacity) else {
        return Ok(None);
    };
    Ok(Some(match kind as u8 {
        b'm' => LockKind::Mutex,
        b'r' => LockKind::ReadWrite,
        b'p' => LockKind::Semaphore {
            permits: u32::try_from(capacity).unwrap_or(0),
        },
        _ => return Err(malformed("an unknown kind of lock")),
    }))
}

/// Reads the lines of holders, `client owner token weight since remaining state name`.
pub(super) fn holders(client: &ClientId, at: ServerTime, lines: &[&str]) -> Vec<HolderView> {
    lines
        .iter()
        .filter_map(|line| holder(client, at, line))
        .collect()
}

fn holder(client: &ClientId, at: ServerTime, line: &str) -> Option<HolderView> {
    let mut fields = line.splitn(8, ' ');
    let (id, owner) = (fields.next()?, fields.next()?.parse::<i64>().ok()?);
    let mut number = || parse_number(fields.next()?);
    let (token, weight, since) = (number()?, number()?, ServerTime(number()?));
    let remaining = Duration::from_millis(number()?);
    let is_kept = fields.next()? == "k";
    let (this_process, local_owner) = recognize(client, id, owner);
    let (client_name, metadata) = client_id::split_name(fields.next()?);
    Some(HolderView {
        local_owner,
        this_process,
        token: FencingToken::new(token),
        weight: u32::try_from(weight).ok()?,
        since,
        expires_in: Some(remaining),
        kept_until: is_kept.then_some(at + remaining),
        client_name,
        metadata,
    })
}

/// Returns true if the owner is of this process, and its number if it is of this client.
fn recognize(client: &ClientId, id: &str, owner: i64) -> (bool, Option<OwnerId>) {
    let id = Uuid::parse_str(id).unwrap_or_default().simple();
    client.recognize(&format!("{id}:{}", owner.cast_unsigned()))
}

/// Reads the lines of waiters, `client since name`.
pub(super) fn waiters(client: &ClientId, lines: &[&str]) -> Vec<QueuedWaiter> {
    let waiter = |line: &&str| {
        let mut fields = line.splitn(3, ' ');
        let (this_process, _) = recognize(client, fields.next()?, 0);
        let since = ServerTime(parse_number(fields.next()?)?);
        let (client_name, _) = client_id::split_name(fields.next()?);
        Some(QueuedWaiter {
            this_process,
            since,
            client_name,
        })
    };
    lines.iter().filter_map(waiter).collect()
}

/// Reads a success record, `since gap token finished name`.
pub(super) fn record(line: &str) -> StoreResult<Record> {
    let mut fields = line.splitn(5, ' ');
    let mut number = || parse_number(fields.next()?);
    let parsed = (|| {
        Some(Record {
            since: ServerTime(number()?),
            gap: Duration::from_millis(number()?),
            token: FencingToken::new(number()?),
            finished: ServerTime(number()?),
            holder_name: String::new(),
        })
    })();
    let record = parsed.ok_or_else(|| malformed("a record that is not one"))?;
    Ok(Record {
        holder_name: fields.next().unwrap_or_default().to_owned(),
        ..record
    })
}
