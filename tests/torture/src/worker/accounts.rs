//! Transfers between accounts in the database of the locks. Each is a transaction that reads two
//! accounts, waits, and overwrites both without any lock of the database, so that only distlock's
//! lock keeps an update from being lost. The transaction checks that the lock is held.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use distlock::{Error, HeldLock};
use tokio::task::AbortHandle;
use tokio_postgres::{Client, NoTls, Transaction};

use super::Ticket;
use super::body::{BodyRun, Ended, pass_time};
use super::doors::{Returned, lease, manager, refused, wait};
use crate::history::Step;
use crate::random::Random;
use crate::servers::{IDLE_IN_TRANSACTION, ISOLATIONS};

/// Upper limit of the time for a transaction.
const PATIENCE: Duration = Duration::from_secs(5);

/// The connections of this worker to the database.
#[derive(Debug)]
pub(super) struct Database {
    url: String,
    idle: Mutex<Vec<Connection>>,
}

/// A connection, which is closed when it is dropped, even if a reply is outstanding.
#[derive(Debug)]
struct Connection {
    client: Client,
    driver: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Database {
    pub(super) fn new(url: String) -> Self {
        Database {
            url,
            idle: Mutex::default(),
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().expect("no thread panics with it")
    }

    async fn connection(&self) -> anyhow::Result<Connection> {
        while let Some(connection) = { self.idle().pop() } {
            if !connection.client.is_closed() {
                return Ok(connection);
            }
        }
        let (client, driver) = tokio_postgres::connect(&self.url, NoTls).await?;
        let driver = tokio::spawn(driver).abort_handle();
        let connection = Connection { client, driver };
        let idle = IDLE_IN_TRANSACTION.as_millis();
        let settings = format!(
            "set idle_in_transaction_session_timeout = {idle}; set statement_timeout = '3s'; \
             set client_connection_check_interval = '200ms'"
        );
        connection.client.batch_execute(&settings).await?;
        Ok(connection)
    }
}

/// When a transaction checks its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    First,
    Last,
    /// With `LockGuard::commit`.
    Commit,
}

impl Check {
    fn of(ticket: &Ticket) -> Check {
        match ticket.op % 3 {
            0 => Check::First,
            1 => Check::Last,
            _ => Check::Commit,
        }
    }
}

/// Why a transfer was not, or perhaps not, committed.
enum Failure {
    /// The lock was lost, so nothing was committed.
    Stale,
    Other(anyhow::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Lost { .. } => Failure::Stale,
            error => Failure::Other(error.into()),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::Other(error)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Failure::Other(error.into())
    }
}

impl Failure {
    fn ended(self, detail: &mut Option<String>) -> Ended {
        match self {
            Failure::Stale => Ended::Stale,
            Failure::Other(error) => {
                *detail = Some(format!("{error:#}"));
                Ended::Failed
            }
        }
    }
}

/// Moves an amount under one lock, or with a second ticket under two.
pub(super) async fn transfer(ticket: &Ticket, second: Option<&Ticket>) -> Returned {
    match second {
        Some(second) => between_banks([ticket, second]).await,
        // The body is dropped with the loss of the lock.
        None if ticket.op.is_multiple_of(5) => cancelled_on_loss(ticket).await,
        None => with_guard(ticket).await,
    }
}

async fn cancelled_on_loss(ticket: &Ticket) -> Returned {
    let lock = manager(ticket).lock(&ticket.order.invocation.key);
    let lock = lock.lease(lease(ticket)).wait(wait(ticket));
    let mut detail = None;
    let check = match Check::of(ticket) {
        Check::First => Check::First,
        _ => Check::Last,
    };
    let run = lock.run(async |held| {
        let mut body = BodyRun::begin(ticket, held.clone().into());
        let moved = in_time(committed(&[(ticket, &held)], check)).await;
        body.completed = true;
        Ok::<_, Error>(moved.map_or_else(|failure| failure.ended(&mut detail), |()| Ended::Done))
    });
    match run.await {
        Ok(ended) => (ended.into(), detail),
        Err(error) => refused(&error),
    }
}

async fn with_guard(ticket: &Ticket) -> Returned {
    let lock = manager(ticket).lock(&ticket.order.invocation.key);
    let lock = lock.lease(lease(ticket)).wait(wait(ticket));
    let guard = match lock.acquire().await {
        Ok(guard) => guard,
        Err(error) => return refused(&error),
    };
    let mut detail = None;
    let held = guard.held();
    let check = Check::of(ticket);
    let mut body = BodyRun::begin(ticket, held.clone().into());
    let ended = if check == Check::Commit {
        let moving = in_time(async {
            let database = ticket.context.database()?;
            let mut connection = database.connection().await?;
            let transaction = moved(&[(ticket, &held)], check, &mut connection.client).await?;
            body.completed = true;
            drop(body);
            ticket.record(Step::Releasing);
            guard.commit(transaction).await?;
            database.idle().push(connection);
            Ok(())
        });
        moving.await
    } else {
        let ended = in_time(committed(&[(ticket, &held)], check)).await;
        body.completed = true;
        drop(body);
        ticket.record(Step::Releasing);
        // The transfer was committed under the lock, or not at all.
        let _ = guard.release().await;
        ended
    };
    let ended = ended.map_or_else(|failure| failure.ended(&mut detail), |()| Ended::Done);
    (ended.into(), detail)
}

async fn between_banks(tickets: [&Ticket; 2]) -> Returned {
    let keys = tickets.map(|ticket| ticket.order.invocation.key.clone());
    let locks = manager(tickets[0]).lock_all(keys.clone());
    let locks = locks.lease(lease(tickets[0])).wait(wait(tickets[0]));
    let guard = match locks.acquire().await {
        Ok(guard) => guard,
        Err(error) => return refused(&error),
    };
    let all = guard.held();
    let of = |key: &String| all.iter().find(|held| held.key() == key);
    let (Some(from), Some(to)) = (of(&keys[0]), of(&keys[1])) else {
        unreachable!("a hold for each key");
    };
    let mut bodies = [(tickets[0], from), (tickets[1], to)]
        .map(|(ticket, held)| BodyRun::begin(ticket, held.clone().into()));
    let check = match Check::of(tickets[0]) {
        Check::First => Check::First,
        _ => Check::Last,
    };
    let ended = in_time(committed(&[(tickets[0], from), (tickets[1], to)], check)).await;
    bodies.iter_mut().for_each(|body| body.completed = true);
    drop(bodies);
    tickets
        .iter()
        .for_each(|ticket| ticket.record(Step::Releasing));
    let _ = guard.release().await;
    let mut detail = None;
    let ended = ended.map_or_else(|failure| failure.ended(&mut detail), |()| Ended::Done);
    (ended.into(), detail)
}

async fn in_time(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|late| Err(Failure::Other(late.into())))
}

/// Moves an amount, checks the locks, and commits.
async fn committed(held: &[(&Ticket, &HeldLock)], check: Check) -> Result<(), Failure> {
    let database = held[0].0.context.database()?;
    let mut connection = database.connection().await?;
    let mut transaction = moved(held, check, &mut connection.client).await?;
    if check == Check::Last {
        for (_, held) in held {
            held.check_in(&mut transaction).await?;
        }
    }
    transaction.commit().await?;
    database.idle().push(connection);
    Ok(())
}

/// Moves an amount in a transaction that is not committed yet.
async fn moved<'a>(
    held: &[(&Ticket, &HeldLock)],
    check: Check,
    client: &'a mut Client,
) -> Result<Transaction<'a>, Failure> {
    let ticket = held[0].0;
    let mut random = Random::new(&[ticket.op, ticket.context.worker.into(), 0xacc]);
    let isolation = random.pick(ISOLATIONS);
    let mut transaction = client.transaction().await?;
    let set = format!("set transaction isolation level {isolation}");
    transaction.batch_execute(&set).await?;
    if check == Check::First {
        for (_, held) in held {
            held.check_in(&mut transaction).await?;
        }
    }
    let mut accounts = Vec::new();
    for (number, (ticket, _)) in held.iter().cycle().take(2).enumerate() {
        // A lock protects two accounts; a transfer between banks uses the first of each.
        let second = number > 0 && held.len() == 1;
        let bank: u32 = ticket.order.invocation.key[1..]
            .parse()
            .context("no bank")?;
        let account = i32::try_from(2 * bank + u32::from(second)).context("too many")?;
        let read = "select balance, version from torture.account where id = $1";
        let row = transaction.query_one(read, &[&account]).await?;
        let values: (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        accounts.push((*ticket, account, values));
    }
    pass_time(ticket).await;
    let amount = i64::try_from(random.below(19)).unwrap_or(0) - 9;
    for ((ticket, account, (balance, version)), change) in
        accounts.into_iter().zip([-amount, amount])
    {
        let after = balance + change;
        let write = "update torture.account set balance = $2, version = $3 where id = $1";
        transaction
            .execute(write, &[&account, &after, &(version + 1)])
            .await?;
        let [worker, generation] = [ticket.context.worker, ticket.context.generation];
        let log = format!(
            "insert into torture.change (worker, generation, op, account, version, before, after) \
             values ({worker}, {generation}, {}, {account}, {version}, {balance}, {after})",
            ticket.op
        );
        transaction.batch_execute(&log).await?;
    }
    Ok(transaction)
}
