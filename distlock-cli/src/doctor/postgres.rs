//! Judges the facts about a PostgreSQL server by their effect on locks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::__doctor::PostgresFacts;

use crate::doctor::diagnostic::{Diagnostic, Severity};

/// The oldest supported server.
const MIN_VERSION: u32 = 14;
/// The age of a transaction (s) from which the versions of rows that it keeps slow locks down.
const MAX_TRANSACTION: u64 = 300;
/// Dead rows above this number, and above as many as there are live ones, show that nothing removes
/// them.
const MAX_DEAD_ROWS: u64 = 20_000;
/// The round trips of a nearby store.
const MAX_MEDIAN_ROUND_TRIP: Duration = Duration::from_millis(5);
/// Maximum clock skew. With more, the displayed times are wrong.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);

/// Returns the diagnostics about one server.
pub(super) fn of(server: &str, facts: &PostgresFacts) -> Vec<Diagnostic> {
    let checks = Checks { server, facts };
    let checks = [
        checks.latency(),
        checks.clock(),
        checks.version(),
        checks.messages(),
        checks.isolation(),
        checks.durability(),
        checks.standbys(),
        checks.transactions(),
        checks.vacuum(),
        checks.clients(),
    ];
    checks.into_iter().flatten().collect()
}

struct Checks<'a> {
    server: &'a str,
    facts: &'a PostgresFacts,
}

impl Checks<'_> {
    /// Returns a diagnostic that is `Ok`, or a warning with the help.
    fn expect(
        &self,
        check: &'static str,
        is_good: bool,
        message: String,
        help: &str,
    ) -> Option<Diagnostic> {
        let (severity, help) = match is_good {
            true => (Severity::Ok, ""),
            false => (Severity::Warning, help),
        };
        Some(Diagnostic {
            server: self.server.to_owned(),
            check,
            severity,
            message,
            help: help.to_owned(),
        })
    }

    fn fact(&self, name: &str) -> Option<&str> {
        self.facts.values.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.fact(name)?.parse().ok()
    }

    fn latency(&self) -> Option<Diagnostic> {
        let mut round_trips = self.facts.round_trips.clone();
        round_trips.sort_unstable();
        let (count, longest) = (round_trips.len(), round_trips.last()?);
        let median = round_trips.get(count / 2)?;
        self.expect(
            "latency",
            *median <= MAX_MEDIAN_ROUND_TRIP,
            format!("{count} round trips: p50 {median:.1?}, longest {longest:.1?}"),
            "a lock takes two round trips: move the store closer, or hold fewer locks for longer",
        )
    }

    fn clock(&self) -> Option<Diagnostic> {
        let server = UNIX_EPOCH + Duration::from_micros(self.number("clock")?);
        let offset = SystemTime::now().duration_since(server);
        let offset = offset.unwrap_or_else(|error| error.duration());
        self.expect(
            "clock",
            offset <= MAX_CLOCK_SKEW,
            format!("{offset:.1?} apart from the local clock"),
            "times in the output are wrong, but leases do not depend on them: synchronize both clocks (NTP), without steps",
        )
    }

    /// A server that is too old refuses already the connection.
    fn version(&self) -> Option<Diagnostic> {
        let version = self.fact("version")?;
        let major = version.split(|c: char| !c.is_ascii_digit()).next()?;
        self.expect(
            "version",
            major.parse().unwrap_or(0) >= MIN_VERSION,
            format!("PostgreSQL {version}"),
            "upgrade to PostgreSQL 14 or later",
        )
    }

    fn messages(&self) -> Option<Diagnostic> {
        let arrive = self.fact("messages")? == "true";
        self.expect(
            "messages",
            arrive,
            if arrive { "NOTIFY arrives" } else { "NOTIFY does not arrive" }.into(),
            "a pooler gives each transaction another connection, so waiters poll, and a hand-off takes up to half a second: \
             connect to the server directly, or through a pooler in session mode",
        )
    }

    /// Returns a remark if this role sees only its own sessions.
    fn of_role(&self) -> &'static str {
        match self.fact("sees_all") {
            Some("true") => "",
            _ => " of this role (grant it pg_read_all_stats to see all)",
        }
    }

    fn isolation(&self) -> Option<Diagnostic> {
        let isolation = self.fact("isolation")?;
        self.expect(
            "isolation",
            isolation == "read committed",
            format!("default_transaction_isolation {isolation}"),
            "behind a pooler distlock cannot change it, and refuses to connect: ALTER ROLE .. SET \
             default_transaction_isolation = 'read committed'",
        )
    }

    fn durability(&self) -> Option<Diagnostic> {
        let (commit, fsync) = (self.fact("synchronous_commit")?, self.fact("fsync")?);
        self.expect(
            "durability",
            commit != "off" && fsync == "on",
            format!("synchronous_commit {commit}, fsync {fsync}"),
            "a crash of the server can lose the locks of its last second, which other clients can then acquire: set both \
             to on, at least for the role of the locks",
        )
    }

    fn standbys(&self) -> Option<Diagnostic> {
        let names = self.fact("synchronous_standby_names")?;
        let count = self.number("standbys")?;
        let message = format!("{count} connected, synchronous_standby_names `{names}`");
        if count == 0 && names.is_empty() {
            return self.expect("standbys", true, message, "");
        }
        let commit = self.fact("synchronous_commit");
        let waits = !names.is_empty() && !matches!(commit, Some("off" | "local"));
        let help = if waits {
            "commits wait until a standby is connected, and no lock can be acquired: check the standbys"
        } else {
            "a failover can lose a lock that was not replicated yet: set synchronous_standby_names, or check the hold in the \
             transaction (`check_in`)"
        };
        self.expect("standbys", waits && count > 0, message, help)
    }

    fn transactions(&self) -> Option<Diagnostic> {
        let oldest = self.number("oldest_transaction").unwrap_or(0);
        self.expect(
            "transactions",
            oldest <= MAX_TRANSACTION,
            format!(
                "the oldest{} has run for {:?}",
                self.of_role(),
                Duration::from_secs(oldest)
            ),
            "it keeps every old version of the locks' rows, and each call then reads them: end it, and set \
             idle_in_transaction_session_timeout",
        )
    }

    fn vacuum(&self) -> Option<Diagnostic> {
        let autovacuum = self.fact("autovacuum")?;
        let dead = self.number("dead_rows").unwrap_or(0);
        let is_little = dead <= MAX_DEAD_ROWS || Some(dead) <= self.number("live_rows");
        self.expect(
            "autovacuum",
            autovacuum == "on" && is_little,
            format!("autovacuum {autovacuum}, {dead} dead rows of locks"),
            "without it the tables grow with every lock: set autovacuum to on, and look for what holds it up",
        )
    }

    fn clients(&self) -> Option<Diagnostic> {
        let connected = self.number("connections")?;
        let limit = self.number("max_connections")?;
        self.expect(
            "clients",
            connected.saturating_mul(100) < limit.saturating_mul(80),
            format!("{connected} of {limit} connections"),
            "clients above the limit cannot connect: raise max_connections; a manager has two connections, and up to five \
             under load",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 14] = [
        ("messages", "true"),
        ("sees_all", "true"),
        ("version", "15.18 (Debian 15.18-0+deb12u1)"),
        ("synchronous_commit", "on"),
        ("synchronous_standby_names", ""),
        ("fsync", "on"),
        ("standbys", "0"),
        ("isolation", "read committed"),
        ("autovacuum", "on"),
        ("dead_rows", "10"),
        ("live_rows", "5"),
        ("oldest_transaction", "2"),
        ("max_connections", "100"),
        ("connections", "9"),
    ];

    fn is_good(changes: &[(&str, &str)], check: &str) -> bool {
        let values = GOOD.iter().chain(changes);
        let values = values.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let facts = PostgresFacts {
            values: values.collect(),
            round_trips: vec![Duration::from_micros(100); 20],
        };
        let diagnostics = of("postgres://host", &facts);
        let mut found = diagnostics.iter().filter(|found| found.check == check);
        let found = found.next().unwrap();
        let is_good = found.severity == Severity::Ok;
        assert_eq!(found.help.is_empty(), is_good, "{found:?}");
        is_good
    }

    #[test]
    fn each_danger_is_reported() {
        for (check, changes) in [
            ("version", &[("version", "13.4")][..]),
            ("messages", &[("messages", "false")]),
            ("isolation", &[("isolation", "serializable")]),
            ("durability", &[("synchronous_commit", "off")]),
            ("durability", &[("fsync", "off")]),
            ("standbys", &[("standbys", "1")]),
            ("standbys", &[("synchronous_standby_names", "*")]),
            ("transactions", &[("oldest_transaction", "301")]),
            ("autovacuum", &[("autovacuum", "off")]),
            ("autovacuum", &[("dead_rows", "20001")]),
            ("clients", &[("connections", "80")]),
        ] {
            assert!(!is_good(changes, check), "{check}: {changes:?}");
            assert!(is_good(&[], check), "{check}");
        }
        let replicated = [("standbys", "1"), ("synchronous_standby_names", "*")];
        assert!(is_good(&replicated, "standbys"));
        assert!(is_good(&[], "latency"));
    }
}
