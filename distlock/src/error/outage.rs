//! The kinds of outage of a store.

use std::fmt;

/// The kind of outage that makes the store unusable.
///
/// ```
/// # use distlock::{Error, LockManager, Outage};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::Error> {
/// let locks = LockManager::connect_lazy("redis://127.0.0.1:1")?; // nothing listens there
/// let error = locks.lock("report").wait(Duration::from_millis(50)).acquire().await.unwrap_err();
/// assert!(matches!(error, Error::Unavailable { outage: Outage::Unreachable, .. }), "{error}");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outage {
    /// No connection: refused, reset, or not found.
    Unreachable,
    /// A connection, but no reply in time.
    TimedOut,
    /// The server is a read-only replica, or a standby of PostgreSQL.
    ReadOnly,
    /// The server is out of memory (`maxmemory`).
    OutOfMemory,
    /// The server rejects writes (`MISCONF`, `NOREPLICAS`), or its disk is full (PostgreSQL).
    WritesRejected,
    /// Fewer replicas than `min_replicas` requires acknowledged the lock in time, or no disk did in
    /// time (`fsync`). Or an operator of PostgreSQL cancelled the wait for its synchronous standby.
    TooFewReplicas,
    /// The server is loading, busy with a script, has lost its primary, or accepts no more
    /// connections (`maxclients`, `max_connections`). Or a transaction of PostgreSQL keeps a row of
    /// the lock locked for too long.
    NotReady,
    /// The user lacks a permission or grant, or its password was changed.
    Denied,
    /// The server is of another kind than the URL names: another protocol, a cluster node, a
    /// sentinel, or a version that is too old. Or it does not know a command that locks need, or
    /// the database has no schema of this version (`distlock install`). The detail names what to
    /// write. While connecting, this is
    /// [`Error::Config`](crate::Error::Config).
    Misconfigured,
    /// TLS failed: one side does not accept the other's certificate, or a file cannot be read.
    Tls,
    /// The server does not support a setting, such as `fsync`.
    Unsupported,
    /// The sentinels do not know the service that the URL names.
    NoSuchService,
    /// Any other error; see the detail.
    Other,
}

impl Outage {
    /// Returns true if the server replies, but rejects the command.
    pub(crate) fn is_rejection(self) -> bool {
        matches!(
            self,
            Outage::OutOfMemory
                | Outage::WritesRejected
                | Outage::NotReady
                | Outage::Denied
                | Outage::Misconfigured
        )
    }

    /// Returns true if the outage may end without a change of configuration, and a retry therefore
    /// makes sense.
    ///
    /// ```
    /// use distlock::Outage;
    ///
    /// assert!(Outage::Unreachable.is_transient() && !Outage::Denied.is_transient());
    /// ```
    #[must_use]
    pub fn is_transient(self) -> bool {
        !matches!(
            self,
            Outage::Denied
                | Outage::Misconfigured
                | Outage::Tls
                | Outage::Unsupported
                | Outage::NoSuchService
        )
    }
}

/// Returns the detail of an outage and its remedy. The remedy of the kind is added unless the
/// detail has its own, which follows a semicolon.
pub(crate) fn with_remedy(outage: Outage, detail: &str) -> String {
    let remedy = match outage {
        _ if detail.contains("; ") => "",
        Outage::Unreachable | Outage::TimedOut => "; check the server and the network",
        Outage::ReadOnly => "; wait for the failover, or name the primary in the URL",
        Outage::OutOfMemory => "; raise `maxmemory`, and keep `maxmemory-policy noeviction`",
        Outage::WritesRejected => "; see the server's log",
        Outage::TooFewReplicas => "; check the replicas and the persistence of the server",
        Outage::NotReady => "; try again later",
        Outage::Denied => "; check the user's permissions and password",
        Outage::Misconfigured => "; fix the URL",
        Outage::Tls => "; check the TLS settings of both sides",
        Outage::Unsupported => "; change the server's settings, or those of the lock",
        Outage::NoSuchService => "; fix the name of the service in the URL",
        Outage::Other => "",
    };
    format!("{}{remedy}", detail.trim_end_matches(['.', ' ']))
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outage::Unreachable => "unreachable",
            Outage::TimedOut => "no answer in time",
            Outage::ReadOnly => "read-only replica",
            Outage::OutOfMemory => "out of memory",
            Outage::WritesRejected => "the server rejects writes",
            Outage::TooFewReplicas => "not acknowledged in time",
            Outage::NotReady => "the server is not ready",
            Outage::Denied => "not permitted",
            Outage::Misconfigured => "misconfigured",
            Outage::Tls => "TLS failed",
            Outage::Unsupported => "not supported",
            Outage::NoSuchService => "no such service",
            Outage::Other => "error",
        })
    }
}
