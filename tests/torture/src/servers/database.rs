//! A PostgreSQL server, with the schema of the locks and a table that the locks protect.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use distlock::LockManager;
use distlock_tests::{PostgresServer, Proxy};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage, SimpleQueryRow};

use super::user::{PASSWORD, USER};
use super::{LAST_LINES, Needs, Target};
use crate::history::{Account, Accounts, Change, OpId};
use crate::kind::Kind;
use crate::plan::Planned;

/// The number of groups of two accounts. A lock protects each group.
pub(crate) const BANKS: u64 = 6;

/// The isolation levels of transfers, and how often each is used.
pub(crate) const ISOLATIONS: &[(&str, u32)] = &[
    ("READ COMMITTED", 4),
    ("REPEATABLE READ", 1),
    ("SERIALIZABLE", 1),
];

/// The balance of every account at the start.
pub(crate) const BALANCE: i64 = 1_000;

/// A worker's transaction that does nothing for this long is ended by the server, as after its
/// client was cut off. Longer than most freezes, so that frozen workers keep what they checked in.
pub(crate) const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(3);

/// Upper limit of the time for a query of the supervisor.
const PATIENCE: Duration = Duration::from_secs(10);

/// Rights that a fault revokes; locks must survive it. They affect different verbs.
const RIGHTS: [&str; 5] = [
    "insert on distlock.hold",
    "update on distlock.hold",
    "delete on distlock.hold",
    "update on distlock.lock",
    "select on distlock.queue",
];

/// The tables of the accounts. A change records what a transfer read and wrote, in its transaction.
const ACCOUNTS: &str = "
    create schema torture;
    create table torture.account (id int primary key, balance bigint not null, version bigint not null);
    create table torture.change (
        number bigint generated always as identity, worker int not null, generation int not null,
        op bigint not null, account int not null, version bigint not null, before bigint not null,
        after bigint not null);
    grant usage on schema torture to worker;
    grant select, update on torture.account to worker;
    grant insert on torture.change to worker;";

/// The documented rights of a client.
const GRANTS: &str = "
    create role worker login;
    grant usage on schema distlock to worker;
    grant select, insert, update, delete on all tables in schema distlock to worker;";

/// Returns the key of the lock that protects a group of accounts.
pub(crate) fn bank(number: u64) -> String {
    format!("b{number}")
}

#[derive(Debug)]
pub(super) struct Database {
    server: PostgresServer,
    /// A transaction that prevents writes.
    pause: Option<Session>,
}

impl Database {
    pub(super) fn start(needs: &Needs) -> anyhow::Result<Self> {
        let mut builder = PostgresServer::builder().setting("max_connections", "200");
        if needs.clock {
            builder = builder.own_clock();
        }
        let database = Database {
            server: builder.start(),
            pause: None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(LockManager::install_schema(&database.server.url()))?;
        #[cfg(sabotage)]
        if let Some(name) = &needs.sabotage {
            database.sql(&distlock::__inside::postgres_functions(name))?;
        }
        database.sql(GRANTS)?;
        database.sql(ACCOUNTS)?;
        for account in 0..2 * BANKS {
            database.sql(&format!(
                "insert into torture.account values ({account}, {BALANCE}, 0)"
            ))?;
        }
        Ok(database)
    }

    fn sql(&self, text: &str) -> anyhow::Result<String> {
        // The server may still refuse writes by a fault.
        let text = format!("set default_transaction_read_only = off;\n{text}");
        let rows = self.server.try_sql(&text);
        rows.map_err(|error| anyhow!("{text}: {error}"))
    }

    /// Ends connections of the workers.
    fn terminate(&self, which: &str) -> anyhow::Result<()> {
        let all = "select count(pg_terminate_backend(pid)) from pg_stat_activity";
        self.sql(&format!("{all} where usename = '{USER}' and {which}"))
            .map(drop)
    }

    fn set_read_only(&self, is_read_only: bool) -> anyhow::Result<()> {
        let value = if is_read_only { "on" } else { "off" };
        let set = format!("alter system set default_transaction_read_only = {value}");
        self.sql(&format!("{set}; select pg_reload_conf()"))
            .map(drop)
    }
}

impl Target for Database {
    fn url(&self, ports: &[u16]) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/locks", ports[0])
    }

    fn own_url(&self) -> String {
        self.server.url()
    }

    fn version(&self) -> String {
        let version = self.server.sql("show server_version");
        let version = version.split(' ').next().unwrap_or_default();
        format!("postgresql {version}")
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        vec![self.server.addr()]
    }

    fn connections(&self) -> anyhow::Result<u32> {
        let count = "select count(*) from pg_stat_activity where usename =";
        let count = self.sql(&format!("{count} '{USER}'"))?;
        Ok(count.parse()?)
    }

    /// Expired holds remain until the next call for their lock.
    fn leftovers(&self) -> anyhow::Result<Vec<String>> {
        let keys = self.sql(
            "select key from distlock.hold where weight > 0 and expires > clock_timestamp() \
             union all select key from distlock.queue",
        )?;
        Ok(keys.lines().map(str::to_owned).collect())
    }

    fn accounts(&self) -> anyhow::Result<Option<Accounts>> {
        let session = Session::connect(&self.own_url(), PATIENCE)?;
        let numbers = |row: &SimpleQueryRow| -> anyhow::Result<Vec<i64>> {
            let columns = 0..row.len();
            let number = |column| Ok(row.get(column).context("no null")?.parse()?);
            columns.map(number).collect()
        };
        let read = |text| {
            let rows = session.query(text, PATIENCE)?;
            rows.iter().map(numbers).collect::<anyhow::Result<Vec<_>>>()
        };
        let accounts = read("select id, balance, version from torture.account order by id")?;
        let accounts = accounts.into_iter().map(|row| Account {
            id: row[0],
            balance: row[1],
            version: row[2],
        });
        let changes = read(
            "select account, version, before, after, worker, generation, op from torture.change \
             order by number",
        )?;
        let changes = changes.into_iter().map(|row| {
            Ok(Change {
                account: row[0],
                version: row[1],
                before: row[2],
                after: row[3],
                by: OpId {
                    worker: row[4].try_into()?,
                    generation: row[5].try_into()?,
                    op: row[6].try_into()?,
                },
            })
        });
        Ok(Some(Accounts {
            balance: BALANCE,
            accounts: accounts.collect(),
            changes: changes.collect::<anyhow::Result<_>>()?,
        }))
    }

    fn links(&self) -> Vec<Proxy> {
        vec![self.server.proxy()]
    }

    fn begin(&mut self, fault: &Planned) -> anyhow::Result<()> {
        match fault.kind {
            Kind::ServerStop => self.server.stop_process(),
            Kind::RestartLossless => self.server.kill(),
            Kind::ClockStep => self.server.set_clock(fault.flag, fault.by),
            Kind::KillClients if fault.flag => self.terminate("true")?,
            Kind::KillClients => self.terminate("random() < 0.3")?,
            Kind::KillPubsub => {
                let listening = "select pid from pg_locks where locktype = 'advisory'";
                self.terminate(&format!("pid in ({listening})"))?;
            }
            Kind::PauseWrites => {
                let session = Session::connect(&self.own_url(), PATIENCE)?;
                // Transactions that checked in do not conflict with this mode.
                let lock = "begin; lock table distlock.hold in share row exclusive mode";
                session.query(lock, PATIENCE)?;
                self.pause = Some(session);
            }
            Kind::TakePermission => {
                self.sql(&format!("revoke {} from {USER}", right(fault)))?;
            }
            Kind::Refuse => self.set_read_only(true)?,
            kind => bail!("{kind:?} is not a fault of PostgreSQL"),
        }
        Ok(())
    }

    fn end(&mut self, fault: &Planned) -> anyhow::Result<bool> {
        match fault.kind {
            Kind::ServerStop => self.server.cont_process(),
            Kind::RestartLossless => self.server.restart(),
            Kind::ClockStep => self.server.set_clock(true, Duration::ZERO),
            Kind::PauseWrites => self.pause = None,
            Kind::TakePermission => {
                self.sql(&format!("grant {} to {USER}", right(fault)))?;
            }
            Kind::Refuse => self.set_read_only(false)?,
            _ => {}
        }
        Ok(true)
    }

    fn last_words(&self) -> String {
        let log = self.server.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }
}

/// Returns the right that a fault chooses.
fn right(fault: &Planned) -> &'static str {
    let index = fault.choice % RIGHTS.len() as u64;
    RIGHTS[usize::try_from(index).unwrap_or(0)]
}

/// A connection whose queries block the calling thread.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    /// Runs the connection; dropping it closes the connection.
    runtime: Runtime,
}

impl Session {
    pub(crate) fn connect(url: &str, patience: Duration) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let client = runtime.block_on(async {
            let connecting = tokio_postgres::connect(url, NoTls);
            let (client, connection) = timeout(patience, connecting).await??;
            tokio::spawn(connection);
            anyhow::Ok(client)
        })?;
        Ok(Session { client, runtime })
    }

    /// Runs statements without parameters, and returns their rows.
    pub(crate) fn query(
        &self,
        text: &str,
        patience: Duration,
    ) -> anyhow::Result<Vec<SimpleQueryRow>> {
        let querying = async { timeout(patience, self.client.simple_query(text)).await };
        let messages = self.runtime.block_on(querying)??;
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(rows.collect())
    }
}
