//! The store in PostgreSQL. Only this module uses `tokio-postgres`.
//!
//! The rules are in `sql/functions.sql`: a verb there is a command here, one statement and one
//! transaction. A client has a `pool` of connections for commands, and a `listener`, which receives
//! grants, shows that the client is alive, and renews. Each is a `link`, which reopens its `session`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::types::ToSql;

use crate::fencing::FencingToken;
use crate::key::LockKey;
use crate::protocol::messages::{
    Acquire, AcquireReply, CheckQueue, CheckQueueReply, Confirm, Confirmation, DeleteRecord,
    Downgrade, Inspect, Inspection, List, OwnerId, Proof, Release, ReleaseReply, RenewReply,
    Renewal, RevokeHolds, RevokeReply,
};
use crate::protocol::store_error::StoreError;
use crate::store::availability::Availability;
use crate::store::client_id::join_name;
use crate::store::postgres::client::PostgresClient;
use crate::store::postgres::decode::{column, holders, kind, record, server_time, token, waiters};
use crate::store::postgres::decode::{held_token, one};
use crate::store::postgres::encode::{long, short};
use crate::store::postgres::errors::malformed;
use crate::store::postgres::listener::{LISTENS_ON, Listener};
use crate::store::postgres::pool::Pool;
use crate::store::postgres::session::Limit;
use crate::store::postgres::shared::Shared;
use crate::store::postgres::verbs::Verb;
use crate::store::{BoxFuture, Capabilities, LockStore, OpenedStore, StoreResult};
use crate::util::clock::BootInstant;
use crate::util::sync::wait_until;

pub(crate) mod client;
mod commands;
pub(crate) mod config;
mod decode;
mod encode;
mod errors;
pub(crate) mod facts;
pub(crate) mod install;
mod link;
mod listener;
mod pool;
pub(crate) mod schema;
mod session;
mod shared;
mod verbs;

/// One client of a database.
pub(crate) struct PostgresStore {
    shared: Arc<Shared>,
}

impl PostgresStore {
    /// Opens the connections in the background, on the current runtime.
    pub(crate) fn connect_lazy(client: PostgresClient) -> OpenedStore {
        let client = Arc::new(client);
        let availability = Arc::new(Availability::new(
            &client.address,
            &client.config.namespace,
            client.clock.clone(),
            client.reports.clone(),
            client.state.clone(),
        ));
        let shared = Arc::new(Shared {
            pool: Pool::spawn(client.clone(), availability.clone()),
            listener: Listener::spawn(client.clone(), availability.clone()),
            availability,
            acquires: AtomicU64::new(0),
            client,
        });
        let housekeeping = Arc::downgrade(&shared);
        tokio::spawn(async move {
            let mut swept_at = BootInstant(0);
            loop {
                tokio::time::sleep(LISTENS_ON).await;
                let Some(shared) = housekeeping.upgrade() else {
                    return;
                };
                shared.keep_house(&mut swept_at).await;
            }
        });
        OpenedStore {
            system: "postgresql",
            identity: shared.client.config.identity().into(),
            address: Some(shared.client.address.clone()),
            store: Box::new(PostgresStore { shared }),
            capabilities: Capabilities::POSTGRES,
        }
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait]
impl LockStore for PostgresStore {
    async fn acquire(&self, acquire: &Acquire<'_>, timeout: Duration) -> StoreResult<AcquireReply> {
        let limit = Limit::Timer(timeout);
        self.shared.acquire_or_queue(acquire, limit).await
    }

    fn acquire_here<'a>(
        &'a self,
        acquire: &'a Acquire<'a>,
        timeout: Duration,
    ) -> Option<BoxFuture<'a, StoreResult<AcquireReply>>> {
        self.shared.session().ok()?;
        let limit = Limit::Caller(timeout);
        Some(Box::pin(self.shared.acquire_or_queue(acquire, limit)))
    }

    async fn acquire_all(
        &self,
        acquires: &[Acquire<'_>],
        timeout: Duration,
    ) -> StoreResult<Option<Proof>> {
        let client = &self.shared.client;
        let Some(first) = acquires.first() else {
            return Ok(None);
        };
        // In ascending order, so that no two calls wait for each other.
        let owners: BTreeMap<_, _> = acquires
            .iter()
            .map(|acquire| {
                let target = &acquire.target;
                (client.name(target.key), target.owner.0.cast_signed())
            })
            .collect();
        let (names, owners): (Vec<_>, Vec<_>) = owners.into_iter().unzip();
        let apply_by = client.server_clock.apply_by(client.clock.now(), timeout);
        let holder_name = join_name(&client.settings.client_name, first.metadata, false);
        let parameters: [&(dyn ToSql + Sync); 8] = [
            &names,
            &client.uuid,
            &client.liveness_lock(),
            &owners,
            &short(first.target.timing.ttl()),
            &apply_by.0.cast_signed(),
            &self.shared.fence_ttl(),
            &&*holder_name,
        ];
        let acquiring = self.shared.command(Verb::AcquireAll, &parameters, timeout);
        let (sent_at, rows) = acquiring.await?;
        let row = one(&rows)?;
        self.shared.learn_time(sent_at, row)?;
        let reply: i8 = column(row, "reply")?;
        if reply as u8 != b'H' {
            return Ok(None);
        }
        Ok(Some(self.shared.proof(sent_at, held_token(row)?)))
    }

    async fn confirm(&self, confirm: &Confirm<'_>, timeout: Duration) -> StoreResult<Confirmation> {
        let (client, target) = (&self.shared.client, &confirm.target);
        let parameters: [&(dyn ToSql + Sync); 6] = [
            &client.name(target.key),
            &client.uuid,
            &target.owner.0.cast_signed(),
            &short(target.timing.ttl()),
            &confirm.once.map(|once| &*once.selector),
            &confirm.once.map(|once| long(once.gap)),
        ];
        let confirming = self.shared.command(Verb::Confirm, &parameters, timeout);
        let (sent_at, rows) = confirming.await?;
        let row = one(&rows)?;
        self.shared.learn_time(sent_at, row)?;
        if let Some(ran) = column::<Option<&str>>(row, "ran")? {
            return Ok(Confirmation::AlreadyRan(record(ran)?));
        }
        let proof = token(row)?.map(|token| self.shared.proof(sent_at, token));
        Ok(proof.into())
    }

    async fn renew(&self, batch: &[Renewal<'_>], timeout: Duration) -> StoreResult<RenewReply> {
        self.shared.renew(batch, timeout).await
    }

    async fn downgrade(
        &self,
        downgrade: &Downgrade<'_>,
        timeout: Duration,
    ) -> StoreResult<Option<Proof>> {
        let (client, target) = (&self.shared.client, &downgrade.target);
        let parameters: [&(dyn ToSql + Sync); 6] = [
            &client.name(target.key),
            &client.uuid,
            &target.owner.0.cast_signed(),
            &downgrade.token.as_i64(),
            &short(target.timing.ttl()),
            &self.shared.fence_ttl(),
        ];
        let downgrading = self.shared.command(Verb::Downgrade, &parameters, timeout);
        let (sent_at, rows) = downgrading.await?;
        let row = one(&rows)?;
        self.shared.learn_time(sent_at, row)?;
        Ok(token(row)?.map(|token| self.shared.proof(sent_at, token)))
    }

    async fn release(&self, release: &Release<'_>, timeout: Duration) -> StoreResult<ReleaseReply> {
        self.shared.release(release, Limit::Timer(timeout)).await
    }

    fn release_here<'a>(
        &'a self,
        release: &'a Release<'a>,
        timeout: Duration,
    ) -> Option<BoxFuture<'a, StoreResult<ReleaseReply>>> {
        self.shared.session().ok()?;
        Some(Box::pin(
            self.shared.release(release, Limit::Caller(timeout)),
        ))
    }

    async fn check_queues(
        &self,
        checks: &[CheckQueue],
        timeout: Duration,
    ) -> StoreResult<Vec<CheckQueueReply>> {
        let client = &self.shared.client;
        client.note_wait();
        // A client that lost its listening session listens again.
        // If that fails, this check and the next ones find what messages would have said.
        drop(self.shared.listener.listen(Limit::Timer(timeout)).await);
        let names: Vec<_> = checks.iter().map(|check| client.name(&check.key)).collect();
        let (mut firsts, mut owners) = (Vec::new(), Vec::new());
        for check in checks {
            firsts.push(i32::try_from(owners.len() + 1).unwrap_or(i32::MAX));
            owners.extend(check.owners.iter().map(|owner| owner.0.cast_signed()));
        }
        let parameters: [&(dyn ToSql + Sync); 5] = [
            &client.uuid,
            &names,
            &firsts,
            &owners,
            &self.shared.fence_ttl(),
        ];
        let checking = self.shared.command(Verb::CheckQueues, &parameters, timeout);
        let (sent_at, rows) = checking.await?;
        if rows.len() != checks.len() {
            return Err(malformed("another number of rows"));
        }
        let mut replies = Vec::with_capacity(rows.len());
        for (row, check) in rows.iter().zip(checks) {
            self.shared.learn_time(sent_at, row)?;
            let at = server_time(row)?.unwrap_or_default();
            let named = |name| {
                let indexes: Vec<i32> = column(row, name)?;
                let owner = |index: i32| usize::try_from(index - 1).ok();
                let owners = indexes.into_iter().filter_map(owner);
                let owners = owners.filter_map(|index| check.owners.get(index).copied());
                Ok::<_, StoreError>(owners.collect())
            };
            let lines: Vec<&str> = column(row, "holders")?;
            replies.push(CheckQueueReply::Checked {
                kind: kind(row, "kind", "capacity")?,
                holders: holders(&client.id, at, &lines),
                holding: named("holding")?,
                missing: named("missing")?,
                is_unfinished: false,
            });
        }
        Ok(replies)
    }

    async fn inspect(&self, inspect: &Inspect<'_>, timeout: Duration) -> StoreResult<Inspection> {
        let client = &self.shared.client;
        let max_listed = i32::try_from(inspect.max_listed).unwrap_or(i32::MAX);
        let parameters: [&(dyn ToSql + Sync); 2] = [&client.name(inspect.key), &max_listed];
        let inspecting = self.shared.command(Verb::Inspect, &parameters, timeout);
        let (sent_at, rows) = inspecting.await?;
        let row = one(&rows)?;
        self.shared.learn_time(sent_at, row)?;
        let at = server_time(row)?.unwrap_or_default();
        let lines: Vec<&str> = column(row, "holders")?;
        let holders = holders(&client.id, at, &lines);
        let lines: Vec<&str> = column(row, "waiters")?;
        let last_token: Option<i64> = column(row, "last_token")?;
        let ran: Option<&str> = column(row, "ran")?;
        let length: i64 = column(row, "queue_length")?;
        Ok(Inspection {
            kind: kind(row, "kind", "capacity")?,
            expires_in: holders.iter().filter_map(|holder| holder.expires_in).max(),
            holders,
            queue_length: u64::try_from(length).unwrap_or(0),
            waiters: waiters(&client.id, &lines),
            last_token: last_token
                .and_then(|token| u64::try_from(token).ok())
                .map(FencingToken::new),
            record: ran.map(record).transpose()?,
            ..Inspection::default()
        })
    }

    async fn list(&self, list: &List<'_>, timeout: Duration) -> StoreResult<Vec<LockKey>> {
        let client = &self.shared.client;
        let prefix = format!("{}{}", client.prefix, list.prefix);
        let (_, rows) = self.shared.command(Verb::List, &[&prefix], timeout).await?;
        let keys = rows.iter().map(|row| column::<&str>(row, "list"));
        let keys = keys.filter_map(|name| name.map(|name| client.key(name)).transpose());
        keys.collect()
    }

    async fn revoke(
        &self,
        revoke: &RevokeHolds<'_>,
        timeout: Duration,
    ) -> StoreResult<RevokeReply> {
        let client = &self.shared.client;
        let tokens: Vec<_> = revoke.tokens.iter().map(|token| token.as_i64()).collect();
        let parameters: [&(dyn ToSql + Sync); 6] = [
            &client.name(revoke.key),
            &client.uuid,
            &tokens,
            &revoke.delete,
            &client.settings.client_name,
            &self.shared.fence_ttl(),
        ];
        let (_, rows) = self
            .shared
            .command(Verb::Revoke, &parameters, timeout)
            .await?;
        let row = one(&rows)?;
        let reply: i8 = column(row, "reply")?;
        Ok(match reply as u8 {
            b'R' => RevokeReply::Revoked(held_token(row)?),
            b'D' => RevokeReply::Deleted(held_token(row)?),
            _ => RevokeReply::NotHeld,
        })
    }

    async fn delete_record(
        &self,
        delete: &DeleteRecord<'_>,
        timeout: Duration,
    ) -> StoreResult<Result<bool, String>> {
        let name = self.shared.client.name(delete.key);
        let parameters: [&(dyn ToSql + Sync); 2] = [&name, &delete.selector];
        let deleting = self
            .shared
            .command(Verb::DeleteRecord, &parameters, timeout);
        let (_, rows) = deleting.await?;
        Ok(Ok(column(one(&rows)?, "delete_record")?))
    }

    fn check_in_statement(
        &self,
        key: &LockKey,
        owner: OwnerId,
        token: FencingToken,
    ) -> Option<String> {
        let client = &self.shared.client;
        // In hexadecimal, so that no key can be anything but a text.
        let name = client
            .name(key)
            .bytes()
            .fold(String::new(), |mut hex, byte| {
                // Writing to a string cannot fail.
                let _ = write!(hex, "{byte:02x}");
                hex
            });
        Some(format!(
            "SELECT distlock.check_in(convert_from(decode('{name}', 'hex'), 'UTF8'), '{}', {}, {})",
            client.uuid,
            owner.0.cast_signed(),
            token.as_i64()
        ))
    }

    async fn ready(&self) {
        let link = &self.shared.pool.link;
        // A call of a lazy manager need not wait for a server that refuses it.
        let refused = || {
            let error = self.shared.disconnected();
            !link.was_up() && error.is_some_and(|error| !error.outage.is_transient())
        };
        wait_until(&self.shared.client.state.changed, || {
            (link.is_settled() || refused()).then_some(())
        })
        .await;
    }

    fn connected(&self) -> Result<bool, StoreError> {
        self.shared.disconnected().map_or(Ok(true), Err)
    }

    fn unavailable(&self) -> Option<StoreError> {
        self.shared.session().err()
    }

    fn close(&self) {
        self.shared.pool.close();
        self.shared.listener.link.close();
    }
}
