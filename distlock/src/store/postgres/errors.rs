//! The errors of PostgreSQL, and what they mean for a lock.

use std::error::Error as _;
use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::error::Outage;
use crate::protocol::store_error::StoreError;

/// The remedy if the schema is missing, or is not what this version needs.
pub(super) const INSTALL: &str =
    "run `distlock install --url postgres://...` as a role that may create schemas";

/// Returns what an error of a command or a connection means.
pub(super) fn classify(error: Error) -> StoreError {
    if let Some(reply) = error.as_db_error() {
        return of_server(reply);
    }
    if let Some(io_error) = error.source().and_then(|source| source.downcast_ref()) {
        return of_io(io_error);
    }
    let text = error.to_string();
    let detail = match error.source() {
        Some(source) => format!("{text}: {source}"),
        None => text,
    };
    if error.is_closed() {
        return StoreError::new(Outage::Unreachable, "the connection was closed");
    }
    if detail.contains("password missing") {
        let detail = "the server asks for a password, and there is none; write it into the URL, or set `credentials`";
        return StoreError::new(Outage::Denied, detail);
    }
    StoreError::new(Outage::Other, detail).with_source(error)
}

pub(super) fn of_io(error: &io::Error) -> StoreError {
    // The server rejects a client's certificate after the handshake.
    #[cfg(feature = "tls")]
    if let Some(error) = crate::store::net::tls::read_error(error) {
        return error;
    }
    StoreError::new(Outage::Unreachable, error.to_string())
}

/// Returns what an error of the server means. Nothing was applied, except if the connection was
/// ended.
fn of_server(reply: &DbError) -> StoreError {
    let code = reply.code();
    let text = format!("{} (SQLSTATE {})", reply.message(), code.code());
    let with = |outage, remedy: &str| {
        let error = StoreError::new(outage, &text);
        if remedy.is_empty() {
            error
        } else {
            error.with_remedy(remedy)
        }
    };
    match *code {
        SqlState::INVALID_PASSWORD => with(Outage::Denied, "fix user and password"),
        // The message names user, host and database, and says if the connection has no encryption.
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION if text.contains("pg_hba.conf") => with(
            Outage::Denied,
            "add a line for it to `pg_hba.conf` of the server, or write `?sslmode=verify-full` if its lines ask for TLS",
        ),
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION => with(
            Outage::Denied,
            "fix the user in the URL, or its right to `LOGIN`, or what its line in `pg_hba.conf` asks for",
        ),
        SqlState::INVALID_CATALOG_NAME => with(
            Outage::Misconfigured,
            "create the database, or fix its name in the URL",
        ),
        SqlState::INVALID_SCHEMA_NAME
        | SqlState::UNDEFINED_TABLE
        | SqlState::UNDEFINED_COLUMN
        | SqlState::UNDEFINED_FUNCTION => with(Outage::Misconfigured, INSTALL),
        // While connecting, the only right that is checked.
        SqlState::INSUFFICIENT_PRIVILEGE if reply.parsed_severity() == Some(Severity::Fatal) => {
            with(Outage::Denied, "grant the role `CONNECT` on the database")
        }
        SqlState::INSUFFICIENT_PRIVILEGE => with(
            Outage::Denied,
            "grant the role `USAGE` on the schema `distlock`, and `SELECT, INSERT, UPDATE, DELETE` on its tables",
        ),
        SqlState::READ_ONLY_SQL_TRANSACTION => with(
            Outage::ReadOnly,
            "wait for the failover, or name the primary in the URL",
        ),
        SqlState::DISK_FULL => with(Outage::WritesRejected, "free space on the server's disk"),
        SqlState::TOO_MANY_CONNECTIONS => with(
            Outage::NotReady,
            "raise `max_connections`, or the `CONNECTION LIMIT` that the message names, or connect through a pooler",
        ),
        SqlState::LOCK_NOT_AVAILABLE | SqlState::QUERY_CANCELED => with(
            Outage::NotReady,
            "find the transaction that keeps the lock's row in `pg_stat_activity`, and end it",
        ),
        SqlState::CANNOT_CONNECT_NOW => with(Outage::NotReady, "wait until the server has started"),
        // The server ends the connection, and a command may have been applied.
        SqlState::ADMIN_SHUTDOWN
        | SqlState::CRASH_SHUTDOWN
        | SqlState::IDLE_SESSION_TIMEOUT
        | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => with(Outage::Unreachable, ""),
        _ => match code.code().get(..2).unwrap_or_default() {
            "08" => with(Outage::Unreachable, ""),
            "40" | "53" => with(Outage::NotReady, "try again later"),
            _ => with(Outage::Other, ""),
        },
    }
}

/// Returns the error of a reply that is not what the schema of this version gives.
pub(super) fn malformed(what: &str) -> StoreError {
    StoreError::new(
        Outage::Other,
        format!("the server replied with {what}; {INSTALL}"),
    )
}
